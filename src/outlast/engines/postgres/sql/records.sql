-- Small versioned documents, and what follows when one defines a limit.

-- Compare-and-set of one record: (version, expires_at), no row where the version was another.
create or replace function outlast.put(
  p_skew bigint, p_kind text, p_key text, p_value bytea, p_expect integer, p_ttl_ms bigint,
  p_definition bigint[]
) returns table (version integer, expires_at bigint, changed boolean, topics text[])
language plpgsql as $$
declare
  now bigint;
  r outlast.record;
  was integer;
begin
  -- Two first writers of one record must meet: there is no row to lock yet.
  perform pg_advisory_xact_lock(hashtextextended('outlast.' || p_kind || ':' || p_key, 0));
  select * into r from outlast.record x where x.kind = p_kind and x.key = p_key for update;
  now := outlast.now_ms(p_skew);
  was := case when r.version is null or r.expires_at <= now then 0 else r.version end;
  if p_expect is not null and p_expect <> was then
    return;
  end if;
  changed := r.value is distinct from p_value;
  topics := '{}';
  if p_value is null then
    delete from outlast.record x where x.kind = p_kind and x.key = p_key;
  else
    -- The version goes on counting over a deletion by time, so that an old reader still loses.
    version := coalesce(r.version, 0) + 1;
    expires_at := now + p_ttl_ms;
    insert into outlast.record (kind, key, value, version, expires_at)
    values (p_kind, p_key, p_value, version, expires_at)
    on conflict on constraint record_pkey do update
      set value = excluded.value, version = excluded.version, expires_at = excluded.expires_at;
  end if;
  if p_kind = 'limit' and changed then
    topics := outlast.limit_changed(p_key, p_definition, now);
  end if;
  return next;
end $$;

-- Let every line that the definition governs be looked at; a changed rate starts afresh.
-- p_definition: slots, rate_units, rate_period_ms, permille, volume, window_ms, open_ms; null: gone.
create or replace function outlast.limit_changed(p_key text, p_definition bigint[], p_now bigint) returns text[]
language plpgsql as $$
declare
  d bigint[] := p_definition;
  old outlast.definition;
  gs outlast.gate[];
begin
  -- Until nobody is at work with the old one: a line that he has made could not be seen yet.
  perform pg_advisory_xact_lock(hashtextextended('outlast.definition', 0));
  select * into old from outlast.definition where key = p_key;
  if d is null then
    delete from outlast.definition where key = p_key;
  else
    insert into outlast.definition values (p_key, d[1], d[2], d[3], d[4], d[5], d[6], d[7])
    on conflict (key) do update set slots = d[1], rate_units = d[2], rate_period_ms = d[3],
      permille = d[4], volume = d[5], window_ms = d[6], open_ms = d[7];
  end if;
  gs := outlast.gates(array(
    select k from (select key k from outlast.gauge union select key from outlast.line) keys
    where p_key = any(outlast.families(k))
  ), true);
  for i in 1 .. cardinality(gs) loop
    if (coalesce(old.rate_units, 0), coalesce(old.rate_period_ms, 0))
        <> (coalesce(gs[i].rate_units, 0), coalesce(gs[i].rate_period_ms, 0)) then
      gs[i].tat_us := 0;
    end if;
    if gs[i].permille is null then
      gs[i].open_until := 0;
    end if;
    gs[i].changed := true;
    gs[i].opened := true;
  end loop;
  return outlast.write_gates(gs, p_now);
end $$;
