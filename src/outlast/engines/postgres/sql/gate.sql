-- Limits: what core/limits.py says, in the same integer arithmetic. A gate is a gauge under its
-- lock, with the definition that applies to it and what this step has found out.

-- The names under which a definition of the key may stand, the best one first.
create or replace function outlast.families(key text) returns text[] language sql immutable parallel safe as $$
  select array[key] || array(
    select array_to_string((string_to_array(key, ':'))[1:n], ':') || ':*'
    from generate_series(cardinality(string_to_array(key, ':')) - 1, 1, -1) n
  )
$$;

create or replace function outlast.resolve(p_key text) returns outlast.definition language sql stable as $$
  select d from unnest(outlast.families(p_key)) with ordinality f(key, n)
  join outlast.definition d on d.key = f.key order by f.n limit 1
$$;

-- The gauges of some keys under their locks, in order of the keys. Who may not wait gets those that
-- are free. The definitions are read in a statement of its own: the one that waits for a lock sees
-- what was there before. They stay as they are until this transaction ends.
create or replace function outlast.gates(p_keys text[], p_wait boolean) returns outlast.gate[]
language plpgsql as $$
declare
  gs outlast.gate[];
  locked integer;
  new text[];
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('outlast.definition', 0));
  loop
    new := array(select distinct k from unnest(p_keys) k
      where not exists (select 1 from outlast.gauge where gauge.key = k) order by 1);
    if cardinality(new) > 0 then
      -- Of two who make the same one, one waits until the other's transaction ends.
      if p_wait then
        perform pg_advisory_xact_lock(hashtextextended('outlast.gauge:' || k, 0)) from unnest(new) k;
      else
        new := array(select k from unnest(new) k
          where pg_try_advisory_xact_lock(hashtextextended('outlast.gauge:' || k, 0)));
      end if;
      insert into outlast.gauge (key) select unnest(new) on conflict do nothing;
    end if;
    if not p_wait then
      p_keys := array(select key from outlast.gauge where key = any(p_keys)
        order by key for update skip locked);
      exit;
    end if;
    perform 1 from outlast.gauge where key = any(p_keys) order by key for update;
    get diagnostics locked = row_count;
    -- Else one was idle and swept away: it may be there again, but nobody has locked it.
    exit when locked = (select count(distinct k) from unnest(p_keys) k);
  end loop;
  select array_agg(row(g.key, g.used, g.tat_us, g.paused_until, g.open_until, g.probe, g.buckets,
    d.key is not null, d.slots, d.rate_units, d.rate_period_ms, d.permille, d.volume, d.window_ms,
    d.open_ms, false, false, false, null)::outlast.gate order by g.key) into gs
  from outlast.gauge g left join lateral (
    select x.* from unnest(outlast.families(g.key)) with ordinality f(key, n)
    join outlast.definition x on x.key = f.key order by f.n limit 1
  ) d on true
  where g.key = any(p_keys);
  return coalesce(gs, '{}');
end $$;

create or replace function outlast.cost_us(rate_units bigint, rate_period_ms bigint, units bigint)
returns bigint language sql immutable parallel safe as $$
  select u / rate_units * (rate_period_ms * 1000)
    + u % rate_units * (rate_period_ms * 1000 / rate_units)
    + (u % rate_units * (rate_period_ms * 1000 % rate_units) + rate_units - 1) / rate_units
  from (select least(units, 1000 * rate_units) u) capped
$$;

-- Where the span of a cap began, and where the next one does; 0 is never. 31 days mean a month.
create or replace function outlast.span(p_span_ms bigint, p_now bigint, out start bigint, out ends bigint)
language plpgsql immutable as $$
declare
  month timestamp;
begin
  if p_span_ms = 2678400000 then
    month := date_trunc('month', timestamp 'epoch' + p_now * interval '1 millisecond');
    start := extract(epoch from month) * 1000;
    ends := extract(epoch from month + interval '1 month') * 1000;
  elsif p_span_ms > 0 then
    start := p_now - p_now % p_span_ms;
    ends := start + p_span_ms;
  else
    start := 0;
    ends := 0;
  end if;
end $$;

create or replace function outlast.used_of(g outlast.gate, p_now bigint) returns bigint
language sql immutable as $$
  select case when g.buckets[1] >= (outlast.span(g.window_ms, p_now)).start then g.buckets[2] else 0 end
$$;

-- 0: may pass now. A time: look again then. Null: only a freed slot or the probe can open it.
create or replace function outlast.admit(g outlast.gate, p_units bigint, p_now bigint) returns bigint
language plpgsql immutable as $$
declare
  at bigint := g.paused_until;
  tripped boolean;
  spent boolean := g.permille is null and g.volume is not null and outlast.used_of(g, p_now) >= g.volume;
begin
  if not g.defined then
    return case when at > p_now then at else 0 end;
  end if;
  tripped := g.permille is not null and g.open_until <> 0;
  if tripped and p_now < g.open_until then
    at := greatest(at, g.open_until);
  end if;
  if spent then
    at := greatest(at, (outlast.span(g.window_ms, p_now)).ends);
  end if;
  if g.rate_units > 0 then
    at := greatest(at, (greatest(g.tat_us, p_now * 1000)
      + outlast.cost_us(g.rate_units, g.rate_period_ms, least(p_units, g.rate_units))
      - g.rate_period_ms * 1000 + 999) / 1000);
  end if;
  if at > p_now then
    return at;
  end if;
  if spent or (tripped and g.probe <> '') or g.used >= g.slots then
    return null;
  end if;
  return 0;
end $$;

create or replace function outlast.spend(g outlast.gate, p_units bigint, p_now bigint) returns bigint
language sql immutable as $$
  select case when not g.defined or g.rate_units = 0 or p_units <= 0 then g.tat_us
    else least(greatest(g.tat_us, p_now * 1000)
        + outlast.cost_us(g.rate_units, g.rate_period_ms, p_units),
      p_now * 1000 + 1000 * g.rate_period_ms * 1000) end
$$;

-- Charge units to a cap: the one bucket it has.
create or replace function outlast.book(g outlast.gate, p_units bigint, p_now bigint) returns bigint[]
language sql immutable as $$
  select case when g.permille is not null or g.volume is null or p_units <= 0 then g.buckets
    else array[(outlast.span(g.window_ms, p_now)).start,
      least(outlast.used_of(g, p_now) + p_units, 9007199254740991), 0] end
$$;

-- Count an attempt's verdict on the service, before its slot is freed.
create or replace function outlast.charge(
  inout g outlast.gate, p_task text, p_ok boolean, p_now bigint, out turned text
) language plpgsql immutable as $$
declare
  width bigint;
  start bigint;
  kept bigint[] := '{}';
  n integer;
  failed bigint := 0;
  total bigint := 0;
begin
  if g.permille is null then
    return;
  end if;
  if g.open_until <> 0 then
    if g.probe = p_task then
      g.probe := '';
      g.open_until := case when p_ok then 0 else p_now + g.open_ms end;
      g.changed := true;
      turned := case when p_ok then 'closed' else 'open' end;
    end if;
    return;
  end if;
  width := g.window_ms / 6;
  start := p_now - p_now % width;
  n := cardinality(g.buckets);
  if n > 0 then
    start := greatest(start, g.buckets[n - 2]);
  end if;
  for i in 1 .. n / 3 loop
    if g.buckets[3 * i - 2] > start - 6 * width then
      kept := kept || g.buckets[3 * i - 2 : 3 * i];
    end if;
  end loop;
  n := cardinality(kept);
  if n = 0 or kept[n - 2] <> start then
    kept := kept || array[start, 0, 0];
    n := n + 3;
  end if;
  if p_ok then
    kept[n - 1] := kept[n - 1] + 1;
  else
    kept[n] := kept[n] + 1;
  end if;
  for i in 1 .. n / 3 loop
    failed := failed + kept[3 * i];
    total := total + kept[3 * i] + kept[3 * i - 1];
  end loop;
  g.buckets := kept;
  g.changed := true;
  if total >= g.volume and failed * 1000 >= g.permille * total then
    g.open_until := p_now + g.open_ms;
    g.buckets := '{}';
    turned := 'open';
  end if;
end $$;

-- Write the gates back and open the lines of those that somebody may pass again.
create or replace function outlast.write_gates(gs outlast.gate[], p_now bigint) returns text[]
language plpgsql as $$
declare
  topics text[];
begin
  update outlast.gauge g set used = n.used, tat_us = n.tat_us, paused_until = n.paused_until,
    open_until = n.open_until, probe = n.probe, buckets = n.buckets
  from unnest(gs) n where g.key = n.key and n.changed;
  with opened as (
    update outlast.line l set open_at = p_now from unnest(gs) n
    where l.key = n.key and n.opened and (l.open_at is null or l.open_at > p_now)
    returning l.queue
  )
  select array_agg(distinct 'queue:' || queue) into topics from opened;
  return coalesce(topics, '{}');
end $$;
