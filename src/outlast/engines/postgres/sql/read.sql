-- Functions that queries use.

-- A value inside a payload; null where there is none, or no JSON that PostgreSQL can read.
create or replace function outlast.at_path(p_payload bytea, p_path text[]) returns text
language plpgsql immutable parallel safe as $$
begin
  return convert_from(p_payload, 'UTF8')::json #>> p_path;
exception when others then
  return null;
end $$;

-- Plans are kept until the next ANALYZE: one that was made while a table was small must not look at
-- every row of it when it has become large.
create or replace function outlast.by_id(p_ids uuid[]) returns setof outlast.task
language plpgsql stable rows 10
set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
begin
  return query select * from outlast.task t where t.id = any(p_ids);
end $$;

-- What a task comes after. (+ 0: not by a walk along the index on seq.)
create or replace function outlast.ups_of(p_id uuid) returns text[]
language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  return array(
    select e.up::text from outlast.edge e join outlast.task u on u.id = e.up
    where e.down = p_id order by u.seq + 0);
end $$;
