-- sweep: what nobody's turn takes care of. Each pass is bounded and safe to repeat; what others
-- hold is left to them, or to the next sweep.

create or replace function outlast.sweep(
  p_skew bigint, p_budget integer, p_gone text[], p_stalled bytea, p_brief text,
  out rescued integer, out died integer, out expired integer, out overdue integer,
  out unparked integer, out settled integer, out forgotten integer, out workers integer,
  out more boolean, out topics text[]
) language plpgsql set jit = off set enable_seqscan = off as $$
declare
  now bigint;
  w text;
  lost text[];
  left_over integer := p_budget;
  t outlast.task;
  r record;
  told record;
  n integer;
  keys text[] := '{}';
begin
  rescued := 0;
  died := 0;
  workers := 0;
  more := false;
  topics := '{}';
  perform outlast.begin_log();
  perform 1 from outlast.worker where id = any(p_gone) order by id for update;
  now := outlast.now_ms(p_skew);
  lost := p_gone || array(
    select id from outlast.worker
    where (evicted or lease_until <= now) and id <> all(p_gone)
    order by id limit 100 for update skip locked);

  -- Workers whose lease is over: their tasks run again; the row goes once it holds nothing.
  foreach w in array lost loop
    if left_over <= 0 then
      more := true;
      exit;
    end if;
    select count(*) into n from (
      select 1 from outlast.task where worker = w and state = 'running' limit left_over) held;
    for t in
      select * from outlast.task where worker = w and state = 'running'
      order by id limit left_over for update skip locked
    loop
      left_over := left_over - 1;
      keys := keys || coalesce(t.limits, '{}');
      if t.cancel is not null then
        died := died + 1;
        topics := topics || outlast.finish(t, 'cancelled', now, t.cancel, 'stalled', p_lost => true);
      elsif t.losses + 1 >= t.max_losses then
        died := died + 1;
        topics := topics || outlast.finish(t, 'dead', now, 'stalled', 'stalled',
          p_error => p_stalled, p_brief => p_brief, p_lost => true);
      else
        -- Spread over up to a second, 10 ms each: no stampede.
        rescued := rescued + 1;
        topics := topics || outlast.put_back(t, 'stalled', now, 'retry',
          1 + floor(random() * least(1000, 10 * n))::bigint, true, true,
          p_error => p_stalled, p_brief => p_brief);
      end if;
    end loop;
    if left_over <= 0 or exists (
        select 1 from outlast.task where worker = w and state = 'running') then
      update outlast.worker set evicted = true where id = w;
      more := more or left_over <= 0;
    else
      delete from outlast.worker where id = w;
      workers := workers + 1;
    end if;
    topics := topics || ('worker:' || w);
  end loop;

  r := outlast.unpark_due(now, p_budget);
  unparked := r.n;
  topics := topics || r.topics;

  -- Tasks that waited longer than their max_age. One may die of another's death before its turn.
  expired := 0;
  for t in
    select * from outlast.task where state = 'pending' and expires_at <= now
    order by expires_at limit p_budget for update skip locked
  loop
    expired := expired + 1;
    select * into t from outlast.task where id = t.id;
    if t.state = 'pending' then
      topics := topics || outlast.finish(t, 'dead', now, 'expired');
    end if;
  end loop;

  overdue := 0;
  for t in
    update outlast.task x set overdue = true, version = version + 1
    where id = any(array(
      select id from outlast.task y where not y.overdue and overdue_at <= now
      order by overdue_at limit p_budget for update skip locked))
    returning *
  loop
    overdue := overdue + 1;
    if t.state in ('pending', 'running') then
      perform outlast.log(t, 'overdue', now, '{"status":"' || t.state || '"}');
      topics := topics || array['task:' || t.id, 'log'];
    end if;
  end loop;

  -- Under the lock of who has ended, too: he may be redriven at this moment.
  settled := 0;
  for r in
    select u.task, x.state from outlast.unsettled u join outlast.task x on x.id = u.task
    limit p_budget for update of x, u skip locked
  loop
    exit when settled >= p_budget;
    delete from outlast.unsettled where task = r.task;
    told := outlast.settle(r.task, r.state = 'completed', p_budget - settled, now);
    settled := settled + told.told;
    topics := topics || told.topics;
  end loop;

  r := outlast.retain(p_budget, now);
  forgotten := r.n;
  topics := topics || r.topics;

  delete from outlast.reservation where key = any(array(
    select key from outlast.reservation where until <= now
    order by until limit p_budget for update skip locked));
  delete from outlast.fair f where (f.queue, f.lane, f.key) in (
    select x.queue, x.lane, x.key from outlast.fair x
    join outlast.fair c on c.queue = x.queue and c.lane = x.lane and c.key = ''
    where x.key <> '' and x.rank <= c.rank for update of x skip locked);
  for r in
    delete from outlast.record where (kind, key) in (
      select kind, key from outlast.record where expires_at <= now
      order by expires_at limit p_budget for update skip locked)
    returning kind, key
  loop
    if r.kind = 'limit' then
      topics := topics || outlast.limit_changed(r.key, null, now);
    end if;
  end loop;
  topics := topics || outlast.recount(keys, now);
  delete from outlast.gauge where key = any(array(
    select key from outlast.gauge g
    where used = 0 and probe = '' and open_until = 0 and tat_us <= now * 1000
      and (buckets = '{}' or buckets[cardinality(buckets) - 2] between 1 and now - 2678400000)
      and paused_until <= now and not exists (select 1 from outlast.line l where l.key = g.key)
    limit p_budget for update skip locked));
  more := more or greatest(unparked, expired, overdue, settled, forgotten) >= p_budget;
end $$;

-- Slots are what leases hold. Those of evicted workers are counted anew, and every gauge that says
-- otherwise than the leases: looked for without locks, decided under the gauge's.
create or replace function outlast.recount(p_keys text[], p_now bigint) returns text[] language plpgsql as $$
declare
  gs outlast.gate[];
  holders uuid[];
begin
  p_keys := p_keys || array(
    select g.key from outlast.gauge g left join (
      select k, count(*) n, array_agg(t.id::text) ids from outlast.task t, unnest(t.limits) k
      where t.state = 'running' and t.limits is not null group by k
    ) held on held.k = g.key
    where (g.used > 0 or g.probe <> '')
      and (g.used <> coalesce(held.n, 0) or (g.probe <> '' and g.probe <> all(coalesce(held.ids, '{}')))));
  if cardinality(p_keys) = 0 then
    return '{}';
  end if;
  gs := outlast.gates(p_keys, true);
  for i in 1 .. cardinality(gs) loop
    select coalesce(array_agg(t.id), '{}') into holders from outlast.task t
    where t.state = 'running' and t.limits is not null and gs[i].key = any(t.limits);
    gs[i].used := cardinality(holders);
    if gs[i].probe <> all(holders::text[]) then
      gs[i].probe := '';
    end if;
    gs[i].changed := true;
    gs[i].opened := true;
  end loop;
  return outlast.write_gates(gs, p_now);
end $$;

-- Records of kind `retention`, key = a final state or `log`: age_ms, count, bytes. A task whose
-- unique key is still taken stays: without it the key could not be answered.
create or replace function outlast.retain(p_budget integer, p_now bigint, out n integer, out topics text[])
language plpgsql as $$
declare
  r record;
  t outlast.task;
begin
  n := 0;
  topics := '{}';
  for r in
    select key, convert_from(value, 'UTF8')::jsonb rule from outlast.record where kind = 'retention'
  loop
    if r.key = 'log' then
      perform outlast.prune(p_now - (r.rule ->> 'age_ms')::bigint, p_budget);
      continue;
    end if;
    for t in
      select x.* from outlast.task x where x.id = any(array(
        (select id from outlast.task y where state = r.key and completed_at is not null
          and completed_at < p_now - (r.rule ->> 'age_ms')::bigint
          and not exists (select 1 from outlast.reservation k
            where k.key = y.unique_key and k.until > p_now)
          order by completed_at limit p_budget)
        union
        (select id from outlast.task y where r.rule ? 'count' and state = r.key
          and completed_at is not null
          and not exists (select 1 from outlast.reservation k
            where k.key = y.unique_key and k.until > p_now)
          order by completed_at desc
          limit p_budget offset (r.rule ->> 'count')::bigint)
        union
        (select id from (
          select id, completed_at, sum(coalesce(octet_length(result), 0) + octet_length(payload))
            over (order by completed_at desc, seq) total
          from outlast.task y where r.rule ? 'bytes' and state = r.key and completed_at is not null
            and not exists (select 1 from outlast.reservation k
              where k.key = y.unique_key and k.until > p_now)
        ) heavy where total > (r.rule ->> 'bytes')::bigint order by completed_at limit p_budget)
      )) and x.state = r.key order by x.id for update skip locked
    loop
      topics := topics || outlast.forget(t, p_now);
      n := n + 1;
    end loop;
  end loop;
end $$;

-- The oldest events, as far as all of them are older; where the log begins now is remembered.
create or replace function outlast.prune(p_before bigint, p_budget integer) returns void language plpgsql as $$
declare
  top bigint := outlast.horizon();
  last bigint;
begin
  select max(seq) into last from (
    select seq, at from outlast.log
    where seq > (select value::bigint from outlast.meta where name = 'pruned') and seq <= top
    order by seq limit p_budget
  ) old where at < p_before;
  if last is not null then
    delete from outlast.event where seq <= last;
    update outlast.meta set value = greatest(value::bigint, last) where name = 'pruned';
  end if;
end $$;
