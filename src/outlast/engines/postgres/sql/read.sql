-- Functions that queries use.

-- A value inside a payload; null where there is none, or no JSON that PostgreSQL can read.
create or replace function outlast.at_path(p_payload bytea, p_path text[]) returns text
language plpgsql immutable parallel safe as $$
begin
  return convert_from(p_payload, 'UTF8')::json #>> p_path;
exception when others then
  return null;
end $$;
