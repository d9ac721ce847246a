-- How an attempt ends: a task is finished, or put back; dependents told. Every path that takes a
-- task out of `running` or into a final state goes through here. Slots are freed by the caller, in
-- its one pass over the gauges. What these functions return is the topics to ring.

-- SQL where a function can be inlined, else PL/pgSQL: until release 17, every call of a function in
-- SQL plans it anew.

create or replace function outlast.now_ms(p_skew bigint) returns bigint language sql volatile as $$
  select (extract(epoch from clock_timestamp()) * 1000)::bigint + p_skew
$$;

-- Who writes events says so first, with the place where the log ended then: a shared lock with that
-- number, which the end of the transaction releases when its events can be seen. (Transaction ids
-- would not do: one that was drawn before a wait for a lock stands before what it waited for.)
create or replace function outlast.begin_log() returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(
    ('outlast.event'::regclass::oid::bigint - 2147483648)::integer,
    ((last_value - (not is_called)::integer & 4294967295) - 2147483648)::integer)
  from outlast.event_seq_seq;
end $$;

-- Up to here the log is complete: whoever drew a number before this moment has ended by now, or
-- holds a lock with a lower one. To be read in a statement before that of the events.
create or replace function outlast.horizon() returns bigint language plpgsql volatile as $$
declare
  top bigint;
  behind bigint;  -- the numbers of the locks have 32 bits
begin
  select last_value - (not is_called)::integer into top from outlast.event_seq_seq;
  -- One that began after `top` was read seems to be nearly 2^32 behind: it is ahead.
  select max(b) into behind
  from (
    select top - (l.objid::bigint + 2147483648) & 4294967295 as b from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 2
      and l.classid::bigint = ('outlast.event'::regclass::oid::bigint - 2147483648) & 4294967295
      and l.database = (select oid from pg_database where datname = current_database())
  ) writers
  where b < 2147483648;
  return top - coalesce(behind, 0);
end $$;

create or replace function outlast.log(t outlast.task, p_kind text, p_now bigint, p_data text) returns void
language plpgsql as $$
begin
  insert into outlast.event (at, task, attempt, kind, session_id, workflow_id, data)
  values (p_now, t.id, t.number, p_kind, t.session_id, t.workflow_id, convert_to(p_data, 'UTF8'));
end $$;

create or replace function outlast.status_of(state text, parked text, lane text) returns text
language sql immutable parallel safe as $$
  select case when state <> 'pending' then state when parked is null then 'ready'
    when parked = 'time' then case lane when 'retry' then 'retrying' else 'scheduled' end
    when parked like 'limit:%' then 'throttled' else 'blocked' end
$$;

-- Stable as the operators in them are: what claims to be more than its parts is not inlined.
create or replace function outlast.entry(
  number integer, worker text, lane text, started_at bigint, ended_at bigint, verdict text, brief text
) returns text language sql stable parallel safe as $$
  select '{"number":' || number || ',"worker":' || to_json(worker) || ',"lane":"' || lane
    || '","started_at":' || started_at || ',"ended_at":' || ended_at || ',"outcome":"' || verdict
    || '"' || coalesce(',"error":' || brief, '') || '}'
$$;

-- The attempts with one more, the first 25 and the last 25 of them kept.
create or replace function outlast.history(attempts text, number integer, entry text) returns text
language plpgsql immutable parallel safe as $$
begin
  if attempts is null then
    return '[' || entry || ']';
  end if;
  attempts := left(attempts, -1) || ',' || entry || ']';
  if number > 50 and json_array_length(attempts::json) > 50 then
    select '[' || string_agg(e::text, ',' order by n) || ']' into attempts
    from json_array_elements(attempts::json) with ordinality a(e, n) where n <> 26;
  end if;
  return attempts;
end $$;

create or replace function outlast.done(state text, reason text, verdict text, brief text) returns text
language sql stable parallel safe as $$
  select '{"status":"' || state || '"' || coalesce(',"outcome":"' || verdict || '"', '')
    || coalesce(',"reason":' || to_json(reason), '') || coalesce(',"error":' || brief, '') || '}'
$$;

-- Where a task that becomes ready stands: its due time, or a virtual time per key.
create or replace function outlast.rank_of(p_queue text, p_lane text, p_key text, p_due bigint) returns bigint
language plpgsql as $$
declare
  clock bigint;
  after bigint;
begin
  if p_key is null then
    return p_due;
  end if;
  select coalesce(max(rank), 0) into clock from outlast.fair
  where queue = p_queue and lane = p_lane and key = '';
  insert into outlast.fair as f (queue, lane, key, rank) values (p_queue, p_lane, 'k' || p_key, clock + 1)
  on conflict (queue, lane, key) do update set rank = greatest(f.rank, clock) + 1
  returning rank into after;
  return after - 1;
end $$;

-- Where a pending task with no upstream left goes. A line is held against being dropped.
create or replace function outlast.place(
  t outlast.task, p_run_at bigint, p_now bigint,
  out parked text, out wake_at bigint, out awaits integer, out rank bigint
) language plpgsql as $$
declare
  k text;
begin
  awaits := 0;
  rank := p_run_at;
  if t.hold is not null
      and not exists (select 1 from outlast.signal s where s.task = t.id and s.name = t.hold) then
    parked := 'signal:' || t.hold;
    awaits := 1;
    return;
  end if;
  if p_run_at > p_now then
    parked := 'time';
    wake_at := p_run_at;
    return;
  end if;
  foreach k in array coalesce(t.limits, '{}') loop
    perform 1 from outlast.line l where l.key = k and l.queue = t.queue and l.lane = t.lane
    for key share;
    if found then
      parked := 'limit:' || k;
      exit;
    end if;
  end loop;
  rank := outlast.rank_of(t.queue, t.lane, t.fair_key, p_run_at);
end $$;

-- What it was parked on is over.
create or replace function outlast.unpark(t outlast.task, p_now bigint) returns text[] language plpgsql as $$
declare
  p record;
begin
  p := outlast.place(t, t.run_at, p_now);
  update outlast.task set parked = p.parked, wake_at = p.wake_at, awaits = p.awaits, rank = p.rank,
    version = version + 1
  where id = t.id;
  return case when p.parked is null or p.parked like 'limit:%' then array['queue:' || t.queue]
    else '{}'::text[] end;
end $$;

-- Into a final state, with everything that follows from it but for the dependents of dependents.
create or replace function outlast.finish(
  t outlast.task, p_state text, p_now bigint, p_reason text default null,
  p_verdict text default 'succeeded', p_result bytea default null, p_error bytea default null,
  p_brief text default null, p_fingerprint text default null, p_progress bytea default null,
  p_refund boolean default false, p_lost boolean default false, p_by_outcome boolean default false,
  p_settle boolean default true
) returns text[] language plpgsql as $$
declare
  ran boolean := t.state = 'running';
  topics text[] := array['task:' || t.id, 'log'];
begin
  update outlast.task set state = p_state, reason = p_reason, completed_at = p_now,
    result = p_result,
    error = case when p_state <> 'completed' then coalesce(p_error, error) end,
    fingerprint = case when p_state <> 'completed' then coalesce(p_fingerprint, fingerprint) end,
    attempts = case when ran then outlast.history(t.attempts, t.number,
      outlast.entry(t.number, t.worker, t.lane, t.started_at, p_now, p_verdict, p_brief))
      else attempts end,
    progress = coalesce(p_progress, progress), fence = null,
    last_fence = case when p_by_outcome then t.fence end, worker = null, cancel = null,
    streamed = false, parked = null, wake_at = null, awaits = 0,
    attempt = attempt - (ran and (p_refund or p_lost))::integer, losses = losses + p_lost::integer,
    updated_at = p_now, version = version + 1
  where id = t.id
  returning dependents into t.dependents;
  if t.unique_key is not null then
    delete from outlast.reservation where key = t.unique_key and task = t.id and until is null;
  end if;
  if t.streamed and p_state <> 'completed' then
    perform outlast.log(t, 'rollback', p_now, '{"outcome":"' || p_verdict || '"}');
  end if;
  perform outlast.log(t, 'done', p_now,
    outlast.done(p_state, p_reason, case when ran then p_verdict end, p_brief));
  if t.dependents and p_settle then
    topics := topics || (outlast.settle(t.id, p_state = 'completed', 500, p_now)).topics;
  end if;
  return topics;
end $$;

-- Tell the dependents of tasks that completed: so many upstreams less, all in one statement. Only
-- those that are not simply ready then are placed one by one. What is locked by others, or of one
-- task beyond the budget, is left to sweep.
create or replace function outlast.settle_completed(
  p_ups uuid[], p_budget integer, p_now bigint, p_wait boolean default false,
  out told integer, out topics text[]
) language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  ups uuid[];
  downs uuid[];
  ready boolean[];  -- once no upstream is left
  others uuid[];
  t outlast.task;
begin
  if p_wait then
    perform 1 from outlast.task where id = any(array(
      select down from outlast.edge where edge.up = any(p_ups) and not done
    )) order by id for update;
  end if;
  select coalesce(array_agg(l.up), '{}'), array_agg(l.down), array_agg(l.free) into ups, downs, ready
  from (
    select e.up, e.down, d.hold is null and d.limits is null and d.fair_key is null
      and d.run_at <= p_now as free
    from unnest(p_ups) u(up) cross join lateral (
      select up, down from outlast.edge where edge.up = u.up and not done
      order by down limit greatest(p_budget, 0)
    ) e join outlast.task d on d.id = e.down
    for update of d skip locked
  ) l;
  told := cardinality(ups);
  topics := '{}';
  if told > 0 then
    with marked as (
      update outlast.edge e set done = true
      from unnest(ups, downs, ready) l(up, down, free)
      where e.up = l.up and e.down = l.down and not e.done
      returning e.down, l.free
    ), counted as (
      select down, bool_and(free) free, count(*)::integer n from marked group by down
    ), freed as (
      update outlast.task d set awaits = greatest(d.awaits - c.n, 0), rank = d.run_at,
        parked = case when d.awaits > c.n or not c.free then 'deps' end,
        version = d.version + (d.awaits <= c.n and c.free)::integer
      from counted c
      -- Not `=`: the planner would walk the index of all that wait.
      where d.id = c.down and d.state = 'pending' and d.parked is not distinct from 'deps'
      returning d.id, d.queue, d.parked, d.awaits
    )
    select coalesce(array_agg(distinct 'queue:' || queue) filter (where parked is null), '{}'),
      array_agg(id) filter (where parked is not null and awaits = 0)
    into topics, others from freed;
    if others is not null then
      for t in select * from outlast.task where id = any(others) order by seq loop
        topics := topics || outlast.unpark(t, p_now);
      end loop;
    end if;
  end if;
  insert into outlast.unsettled
    select up from unnest(p_ups) up
    where exists (select 1 from outlast.edge where edge.up = up.up and not done)
    on conflict do nothing;
end $$;

-- Tell the dependents of an ended task: one upstream less, or cancelled.
create or replace function outlast.settle(
  p_up uuid, p_ok boolean, p_budget integer, p_now bigint, p_wait boolean default false,
  out told integer, out topics text[]
) language plpgsql as $$
declare
  ups uuid[] := array[p_up];
  ended uuid;
  t outlast.task;
begin
  if p_ok then
    select * into told, topics from outlast.settle_completed(ups, p_budget, p_now, p_wait);
    return;
  end if;
  told := 0;
  topics := '{}';
  while cardinality(ups) > 0 loop
    ended := ups[1];
    ups := ups[2:];
    if p_wait then
      perform 1 from outlast.task where id = any(array(
        select down from outlast.edge where edge.up = ended and not done
      )) order by id for update;
    end if;
    for t in
      select d.* from outlast.task d
      where d.id = any(array(
        select down from outlast.edge where edge.up = ended and not done
        order by down limit greatest(p_budget - told, 0)
      ))
      order by d.seq for update skip locked
    loop
      told := told + 1;
      update outlast.edge set done = true where edge.up = ended and down = t.id;
      continue when t.state <> 'pending' or t.parked is distinct from 'deps';
      if t.needs = 'success' then
        topics := topics || outlast.finish(t, 'cancelled', p_now, 'upstream', p_settle => false);
        if t.dependents then
          ups := ups || t.id;
        end if;
      elsif t.awaits > 1 then
        update outlast.task set awaits = awaits - 1 where id = t.id;
      else
        topics := topics || outlast.unpark(t, p_now);
      end if;
    end loop;
    if exists (select 1 from outlast.edge where edge.up = ended and not done) then
      insert into outlast.unsettled values (ended) on conflict do nothing;
    end if;
  end loop;
end $$;

-- From running to pending again: ready, or parked on what the outcome says.
create or replace function outlast.put_back(
  t outlast.task, p_verdict text, p_now bigint, p_lane text default null, p_delay_ms bigint default 0,
  p_refund boolean default false, p_lost boolean default false, p_by_outcome boolean default false,
  p_error bytea default null, p_brief text default null, p_fingerprint text default null,
  p_progress bytea default null, p_timeout_ms bigint default null, p_park text default null,
  p_awaits integer default 1, p_after uuid[] default null
) returns text[] language plpgsql as $$
declare
  to_lane text := coalesce(p_lane, t.lane);
  due bigint := p_now + p_delay_ms;  -- a released task keeps its place in the line
  parks text := case when p_delay_ms > 0 then 'time' end;
  waits integer := 0;
  stands bigint;
  wakes bigint;
  topics text[] := array['task:' || t.id, 'log'];
begin
  if p_verdict = 'released' and p_delay_ms = 0 then
    due := t.run_at;
  end if;
  stands := due;
  if p_after is not null then
    waits := outlast.add_edges(t.id, p_after);
    if waits > 0 then
      parks := 'deps';
    end if;
  elsif p_park is not null then
    parks := null;
    if p_awaits > (select count(*) from outlast.signal s
        where s.task = t.id and s.name = substr(p_park, 8)) then
      parks := p_park;
      waits := p_awaits;
    end if;
  end if;
  if parks is null then
    stands := outlast.rank_of(t.queue, to_lane, t.fair_key, due);
    topics := topics || ('queue:' || t.queue);
  elsif parks <> 'deps' and p_delay_ms > 0 then
    wakes := p_now + p_delay_ms;
  end if;
  update outlast.task set state = 'pending', parked = parks, wake_at = wakes, awaits = waits,
    lane = to_lane, rank = stands, run_at = due, attempt = attempt - p_refund::integer,
    losses = losses + p_lost::integer, error = coalesce(p_error, error),
    fingerprint = coalesce(p_fingerprint, fingerprint),
    attempts = outlast.history(t.attempts, t.number,
      outlast.entry(t.number, t.worker, t.lane, t.started_at, p_now, p_verdict, p_brief)),
    progress = coalesce(p_progress, progress), timeout_ms = coalesce(p_timeout_ms, timeout_ms),
    expires_at = case when p_lane is null then expires_at else due + max_age_ms end,  -- it ages on
    fence = null,
    last_fence = case when p_by_outcome then t.fence end, worker = null, cancel = null,
    streamed = false, hold = null, updated_at = p_now, version = version + 1
  where id = t.id;
  if t.streamed then
    perform outlast.log(t, 'rollback', p_now, '{"outcome":"' || p_verdict || '"}');
  end if;
  if t.followed or p_verdict in ('failed', 'timed_out', 'stalled') then
    perform outlast.log(t, 'state', p_now, '{"status":"'
      || outlast.status_of('pending', parks, to_lane) || '","outcome":"' || p_verdict || '"'
      || coalesce(',"run_at":' || wakes, '') || coalesce(',"error":' || p_brief, '') || '}');
  end if;
  return topics;
end $$;

-- More upstream tasks, however they end; how many of them are not over yet.
create or replace function outlast.add_edges(p_down uuid, p_ups uuid[]) returns integer language plpgsql as $$
declare
  waits integer;
begin
  -- Those that are there, and stay as they are.
  p_ups := array(
    select id from outlast.task where id = any(p_ups) order by id for no key update);
  insert into outlast.edge (up, down, done)
    select u.id, p_down, u.state not in ('pending', 'running')
    from outlast.task u where u.id = any(p_ups)
    on conflict (up, down) do update set done = excluded.done;
  update outlast.task set dependents = true
  where id = any(p_ups) and state in ('pending', 'running') and not dependents;
  update outlast.task set needs = 'any' where id = p_down;
  select count(*) into waits from outlast.task
  where id = any(p_ups) and state in ('pending', 'running');
  return waits;
end $$;
