-- exchange: a worker's turn. Apply its outcomes, renew its lease, unpark what is due, claim.

-- Outcomes, in order. Each whose fence is current takes effect; the others are lost. The slots that
-- ended leases held come back as (at, key, task), for the pass over the gauges.
create or replace function outlast.apply(
  p_now bigint, p_repeated boolean, p_plain boolean,
  o_ids uuid[], o_fences bigint[], o_states text[], o_verdicts text[], o_results bytea[],
  o_errors bytea[], o_briefs text[], o_fingerprints text[], o_reasons text[], o_progress bytea[],
  o_lanes text[], o_delays bigint[], o_refunds boolean[], o_timeouts bigint[], o_mores jsonb,
  o_blobs bytea[],
  out accepted boolean[], out lost integer[],
  out freed_at integer[], out freed_keys text[], out freed_tasks uuid[], out topics text[]
) language plpgsql as $$
declare
  t outlast.task;
  m jsonb;
  e jsonb;
  chunks boolean;
  cut integer;
  applied integer[];
  total integer := 0;
  rest uuid[];
  i integer;
begin
  accepted := array_fill(false, array[cardinality(o_ids)]);
  lost := '{}';
  freed_at := '{}';
  freed_keys := '{}';
  freed_tasks := '{}';
  topics := '{}';
  -- Ends that nothing else hangs on, all in one statement; then the same once more with those of
  -- whom somebody waits and who completed: one by one that was 0.11 ms each. The guard is (id, fence)
  -- and no state: with `state = 'running'` beside it the planner walks another index, 160 µs
  -- instead of 40.
  for pass in 1 .. 2 loop
    if pass = 2 then
      -- The rest under locks taken in order: their tasks and whoever waits for these.
      select array_agg(o.id) into rest from unnest(o_ids, accepted) o(id, done) where not o.done;
      perform 1 from outlast.task where id = any(
        rest || array(select down from outlast.edge where up = any(rest) and not done)
      ) order by id for update;
    end if;
    continue when p_repeated or not p_plain;
    with ended as (
      update outlast.task x set state = d.state, reason = d.reason, completed_at = p_now,
        result = d.result,
        error = case when d.state <> 'completed' then coalesce(d.error, x.error) end,
        fingerprint = case when d.state <> 'completed' then coalesce(d.fingerprint, x.fingerprint) end,
        attempts = case when x.attempts is null then '[' || outlast.entry(
            x.number, x.worker, x.lane, x.started_at, p_now, d.verdict, d.brief) || ']'
          else outlast.history(x.attempts, x.number, outlast.entry(
            x.number, x.worker, x.lane, x.started_at, p_now, d.verdict, d.brief)) end,
        progress = coalesce(d.progress, x.progress), fence = null, last_fence = x.fence,
        worker = null, cancel = null, awaits = 0, hold = null,
        attempt = x.attempt - coalesce(d.refund, false)::integer, updated_at = p_now,
        version = x.version + 1
      from (
        select * from unnest(o_ids, o_fences, o_states, o_verdicts, o_results, o_errors, o_briefs,
          o_fingerprints, o_reasons, o_progress, o_refunds, accepted) with ordinality
        d(id, fence, state, verdict, result, error, brief, fingerprint, reason, progress, refund,
          accepted, n)
        where not d.accepted order by id
      ) d
      where x.id = d.id and x.fence = d.fence and d.state in ('completed', 'cancelled', 'dead')
        and (not x.dependents or pass = 2 and d.state = 'completed')
        and not x.streamed and x.unique_key is null
      returning d.n::integer, x.id, x.number, x.session_id, x.workflow_id, x.limits,
        outlast.done(d.state, d.reason, d.verdict, d.brief) as data
    ), told as (
      insert into outlast.event (at, task, attempt, kind, session_id, workflow_id, data)
      select p_now, x.id, x.number, 'done', x.session_id, x.workflow_id, convert_to(x.data, 'UTF8')
      from ended x
    ), held as (
      select coalesce(array_agg(x.n order by x.n), '{}') at, coalesce(array_agg(k order by x.n), '{}') keys,
        coalesce(array_agg(x.id order by x.n), '{}') tasks
      from ended x, unnest(x.limits) k where x.limits is not null
    )
    select freed_at || held.at, freed_keys || held.keys, freed_tasks || held.tasks,
      array(select x.n from ended x)
    into freed_at, freed_keys, freed_tasks, applied from held;
    if pass = 2 and cardinality(applied) > 0 then
      topics := (outlast.settle_completed(
        array(select o_ids[x] from unnest(applied) x), 500, p_now)).topics;
    end if;
    total := total + cardinality(applied);
    if total = cardinality(o_ids) then
      accepted := array_fill(true, array[cardinality(o_ids)]);
      return;
    end if;
    foreach i in array applied loop
      accepted[i] := true;
    end loop;
  end loop;
  -- What is left, one by one.
  for n in 1 .. cardinality(o_ids) loop
    continue when accepted[n];
    select * into t from outlast.task where id = o_ids[n];
    if t.fence is distinct from o_fences[n] or t.id is null then
      if t.last_fence is distinct from o_fences[n] or t.id is null
          or not (case when o_states[n] in ('pending', 'running') then p_repeated
            else t.state = o_states[n] end) then
        lost := lost || n;
      end if;
      continue;
    end if;
    continue when p_repeated;
    accepted[n] := true;
    m := nullif(o_mores -> (n - 1), 'null');
    if o_states[n] = 'pending' and t.cancel is not null and m ? 'after' then
      m := m - 'steps'; -- They tell of children that are not born, which the task, redriven, would look for.
    end if;
    chunks := false;
    for e in select * from jsonb_array_elements(m -> 'events') loop
      insert into outlast.event (at, task, attempt, kind, session_id, workflow_id, data)
      values (p_now, t.id, t.number, e ->> 0, t.session_id, t.workflow_id, o_blobs[(e ->> 1)::integer]);
      chunks := chunks or e ->> 0 = 'chunk';
    end loop;
    for e in select * from jsonb_array_elements(m -> 'steps') loop
      insert into outlast.step (task, key, value, at, n)
      values (t.id, e ->> 0, o_blobs[(e ->> 1)::integer], p_now,
        (select count(*) from outlast.step s where s.task = t.id))
      on conflict do nothing;
      perform outlast.log(t, 'step', p_now, '{"step":' || (e -> 0)::text || '}');
    end loop;
    if m ? 'spawn' and o_states[n] = 'pending' and t.cancel is not null then
      -- Not those that it was to wait for.
      cut := (m ->> 'payloads')::integer;
      perform outlast.enqueue_batch(0, jsonb_agg(m -> 'spawn' -> c.at order by c.at),
        array_agg(o_blobs[cut + c.at] order by c.at),
        array_agg(o_blobs[cut + jsonb_array_length(m -> 'spawn') + c.at] order by c.at), false, p_now)
      from (select x::integer as at from jsonb_array_elements_text(m -> 'anyway') x) c
      having count(*) > 0;
    elsif m ? 'spawn' then
      cut := (m ->> 'payloads')::integer;
      perform outlast.enqueue_batch(0, m -> 'spawn',
        o_blobs[cut : cut + jsonb_array_length(m -> 'spawn') - 1],
        o_blobs[cut + jsonb_array_length(m -> 'spawn') :], false, p_now);
    end if;
    t.streamed := t.streamed or chunks;
    if o_states[n] = 'running' then
      if o_progress[n] is not null then
        perform outlast.log(t, 'progress', p_now,
          '{"progress":' || convert_from(o_progress[n], 'UTF8') || '}');
      end if;
      update outlast.task set progress = coalesce(o_progress[n], progress), streamed = t.streamed,
        steps = steps or coalesce(m ? 'steps', false), updated_at = p_now, version = version + 1
      where id = t.id;
      topics := topics || array['task:' || t.id, 'log'];
      continue;
    end if;
    if m ? 'steps' then
      update outlast.task set steps = true where id = t.id;
    end if;
    if t.limits is not null then
      freed_at := freed_at || array_fill(n, array[cardinality(t.limits)]);
      freed_keys := freed_keys || t.limits;
      freed_tasks := freed_tasks || array_fill(t.id, array[cardinality(t.limits)]);
    end if;
    if o_states[n] = 'pending' and t.cancel is null then
      topics := topics || outlast.put_back(t, o_verdicts[n], p_now, o_lanes[n],
        coalesce(o_delays[n], 0), coalesce(o_refunds[n], false), false, true, o_errors[n],
        o_briefs[n], o_fingerprints[n], o_progress[n], o_timeouts[n], m ->> 'park',
        coalesce((m ->> 'awaits')::integer, 1),
        case when m ? 'after' then array(select jsonb_array_elements_text(m -> 'after')::uuid) end);
    else
      topics := topics || outlast.finish(t,
        case o_states[n] when 'pending' then 'cancelled' else o_states[n] end, p_now,
        case o_states[n] when 'pending' then t.cancel else o_reasons[n] end, o_verdicts[n],
        o_results[n], o_errors[n], o_briefs[n], o_fingerprints[n], o_progress[n],
        coalesce(o_refunds[n], false), false, true);
    end if;
  end loop;
end $$;

-- Tasks parked on time (or on a signal with a deadline) whose moment has come.
create or replace function outlast.unpark_due(p_now bigint, p_budget integer, out n integer, out topics text[])
language plpgsql as $$
declare
  ids uuid[] := array(
    select id from outlast.task where wake_at <= p_now order by wake_at limit p_budget
    for update skip locked);
  fair uuid[];
begin
  n := cardinality(ids);
  topics := '{}';
  if n = 0 then
    return;  -- the start of an update costs more than the look
  end if;
  with due as (
    update outlast.task set parked = null, wake_at = null, awaits = 0, rank = wake_at
    where id = any(ids)
    returning id, queue, lane, fair_key
  )
  select array_agg(distinct 'queue:' || queue),
    array_agg(id order by queue, lane, fair_key, id) filter (where fair_key is not null)
  into topics, fair from due;
  for i in 1 .. coalesce(cardinality(fair), 0) loop
    update outlast.task set rank = outlast.rank_of(queue, lane, fair_key, p_now) where id = fair[i];
  end loop;
end $$;

-- Candidates of one lane in order, from a place on: up to p_n ready ones, and of each line as many
-- as its key might let pass. Those found are locked; those that others have locked are theirs.
create or replace function outlast.candidates(
  p_queue text, p_lane text, p_priority integer, p_rank bigint, p_id uuid, p_n integer,
  p_keys text[], p_chunks integer[]
) returns outlast.candidate[] language plpgsql as $$
declare
  found_ones outlast.candidate[];
  more outlast.candidate[];
  last outlast.candidate;  -- beyond the end of a full piece the order is not known
begin
  select array_agg(row(c.id, c.priority, c.rank, c.limits, c.units, null, c.ctid,
    c.fair_key is not null)::outlast.candidate
    order by c.priority, c.rank, c.id) into found_ones
  from (
    select ctid, id, priority, rank, limits, units, fair_key from outlast.task
    where queue = p_queue and lane = p_lane and state = 'pending' and parked is null
      and (priority, rank, id) > (p_priority, p_rank, p_id)
    order by priority, rank, id limit p_n for update skip locked
  ) c;
  if cardinality(found_ones) = p_n then
    last := found_ones[p_n];
  end if;
  if cardinality(p_keys) is null then
    return coalesce(found_ones, '{}');
  end if;
  for i in 1 .. cardinality(p_keys) loop
    select array_agg(row(c.id, c.priority, c.rank, c.limits, c.units, p_keys[i],
      c.ctid, c.fair_key is not null)::outlast.candidate
      order by c.priority, c.rank, c.id) into more
    from (
      select ctid, id, priority, rank, limits, units, fair_key from outlast.task
      where parked = 'limit:' || p_keys[i] and queue = p_queue and lane = p_lane
        and state = 'pending' and (priority, rank, id) > (p_priority, p_rank, p_id)
      order by priority, rank, id limit p_chunks[i] for update skip locked
    ) c;
    if cardinality(more) = p_chunks[i] and (last.id is null
        or (more[p_chunks[i]].priority, more[p_chunks[i]].rank, more[p_chunks[i]].id)
          < (last.priority, last.rank, last.id)) then
      last := more[p_chunks[i]];
    end if;
    found_ones := found_ones || more;
  end loop;
  return coalesce((
    select array_agg(c order by c.priority, c.rank, c.id) from unnest(found_ones) c
    where last.id is null or (c.priority, c.rank, c.id) <= (last.priority, last.rank, last.id)
  ), '{}');
end $$;

-- How many of a line are worth locking: as many as its key has slots or units for, one at least.
create or replace function outlast.openings(g outlast.gauge, d outlast.definition, p_most integer, p_now bigint)
returns integer language sql immutable as $$
  select greatest(1, least(p_most::bigint,
    case when d.slots is not null then d.slots - coalesce(g.used, 0) end,
    case when d.rate_units > 0 then d.rate_units - (greatest(coalesce(g.tat_us, 0) - p_now * 1000, 0)
      * d.rate_units) / (d.rate_period_ms * 1000) end
  ))::integer
$$;

create or replace function outlast.somebody_in(l outlast.line) returns boolean language plpgsql stable as $$
begin
  return exists (select 1 from outlast.task x where x.parked = 'limit:' || l.key
    and x.queue = l.queue and x.lane = l.lane and x.state = 'pending');
end $$;

-- A worker's turn: one row that holds the deal, then the leases. The lanes that it wants are named
-- once, with how many of each it wants in all; the wants are (spots: which lane, ns: how many).
create or replace function outlast.exchange(
  p_skew bigint, p_token bigint, p_worker text, p_lease_ms bigint, p_info bytea,
  p_queues text[], p_lanes text[], p_totals integer[], p_spots integer[], p_ns integer[],
  p_room integer, p_pressure boolean, p_leaving boolean, p_plain boolean,
  o_ids uuid[], o_fences bigint[], o_states text[], o_verdicts text[], o_results bytea[],
  o_errors bytea[], o_briefs text[], o_fingerprints text[], o_reasons text[], o_progress bytea[],
  o_lanes text[], o_delays bigint[], o_refunds boolean[], o_timeouts bigint[], o_mores jsonb,
  o_blobs bytea[],
  c_at integer[], c_keys text[], c_oks boolean[], c_units bigint[], c_pauses bigint[],
  p_marks jsonb
) returns table (
  deal text, id text, type text, queue text, lane text, payload bytea, attempt integer, number integer,
  max_attempts integer, losses integer, priority integer, timeout_ms bigint, run_at bigint,
  created_at bigint, limits text[], units bigint[], session_id text, user_id text, parent_id text,
  workflow_id text, unique_key text, meta bytea, step_keys text[], step_values bytea[],
  signal_names text[], signal_data bytea[], signal_at bigint[], followed boolean, max_losses integer,
  rank bigint
) language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  now bigint;
  w outlast.worker;
  repeated boolean := false;
  evicted boolean := false;
  again boolean := false;
  applied record;
  due record;
  claimed record;
  topics text[] := '{}';
  picked tid[] := '{}';
  marks jsonb;
  passed bigint := 0;
  lines outlast.line[];  -- that were looked into: who is empty goes
  t outlast.task;
  lost integer[] := '{}';
  accepted boolean[];
  places bigint[];
  held_at integer[] := '{}';
  held_keys text[] := '{}';
  held_tasks uuid[] := '{}';
  gs outlast.gate[];
begin
  -- A claim waits for the disk, too: its events are read by others, and a crash that took it back
  -- would give their numbers to other events, behind the backs of those readers.
  perform outlast.begin_log();
  loop
    select * into w from outlast.worker x where x.id = p_worker for update;
    exit when found or p_info is null or p_leaving;
    -- A new one: whoever repeats this turn while it runs has to wait for something.
    insert into outlast.worker (id, info, seen_at, lease_until, tokens)
    values (p_worker, p_info, 0, 0, '{}') on conflict do nothing;
  end loop;
  now := outlast.now_ms(p_skew);
  repeated := coalesce(p_token = any(w.tokens), false);
  if c_keys is not null and exists (select 1 from outlast.definition d where d.permille is not null) then
    -- A circuit turns before the attempt that turned it ends; the gauges are seen later.
    places := array(select nextval('outlast.event_seq_seq') from unnest(c_keys));
  end if;
  if o_ids is not null then
    applied := outlast.apply(now, repeated, p_plain, o_ids, o_fences, o_states, o_verdicts,
      o_results, o_errors, o_briefs, o_fingerprints, o_reasons, o_progress, o_lanes, o_delays,
      o_refunds, o_timeouts, o_mores, o_blobs);
    topics := applied.topics;
    lost := applied.lost;
    accepted := applied.accepted;
    held_at := applied.freed_at;
    held_keys := applied.freed_keys;
    held_tasks := applied.freed_tasks;
  end if;
  evicted := coalesce(w.evicted, p_info is null);
  if not evicted and p_leaving then
    for t in select * from outlast.task x where x.worker = p_worker and x.state = 'running'
        order by x.id for update loop
      held_at := held_at || array_fill(1000000, array[coalesce(cardinality(t.limits), 0)]);
      held_keys := held_keys || coalesce(t.limits, '{}');
      held_tasks := held_tasks || array_fill(t.id, array[coalesce(cardinality(t.limits), 0)]);
      topics := topics || case when t.cancel is null
        then outlast.put_back(t, 'released', now, p_refund => true)
        else outlast.finish(t, 'cancelled', now, t.cancel, 'released', p_refund => true) end;
    end loop;
    delete from outlast.worker x where x.id = p_worker;
  elsif not evicted then
    if not repeated and (p_room > 0 or o_ids is not null) then
      w.tokens := (w.tokens || p_token)[greatest(cardinality(w.tokens) - 6, 1):];
    end if;
    update outlast.worker x set info = coalesce(p_info, x.info), seen_at = now,
      lease_until = now + p_lease_ms, tokens = w.tokens
    where x.id = p_worker;
    due := outlast.unpark_due(now, 500);
    topics := topics || due.topics;
    again := due.n = 500;
  end if;
  if evicted or p_leaving or repeated or p_room <= 0 or p_queues is null then
    again := false;
    if cardinality(held_keys) > 0 or c_keys is not null then
      gs := outlast.judge(now, o_ids, accepted, held_at, held_keys, held_tasks,
        c_at, c_keys, c_oks, c_units, c_pauses, places, '{}');
      topics := topics || outlast.write_gates(gs, now);
    end if;
  else
    claimed := outlast.claim(now, p_queues, p_lanes, p_totals, p_spots, p_ns, p_room, o_ids, accepted,
      held_at, held_keys, held_tasks, c_at, c_keys, c_oks, c_units, c_pauses, places, p_marks);
    picked := claimed.picked;
    marks := claimed.marks;
    passed := claimed.passed;
    lines := claimed.lines;
    again := again or claimed.again;
    if cardinality(claimed.emptied) > 0 then  -- whom this turn has made ready it has taken, too
      topics := array(select x from unnest(topics) x
        where x <> all(array(select 'queue:' || q from unnest(claimed.emptied) q)));
    end if;
    topics := topics || claimed.topics;
  end if;
  return query select jsonb_build_object(
    'now', now, 'evicted', evicted, 'repeated', repeated, 'again', again, 'topics', topics,
    'untold', o_ids is not null and exists (select 1 from outlast.unsettled),
    'lost', lost, 'marks', marks, 'passed', passed,
    'cancel', case when not evicted and not repeated and not p_leaving then (
      select jsonb_agg(jsonb_build_array(x.id, x.cancel)) from outlast.task x
      where x.worker = p_worker and x.state = 'running' and x.cancel is not null) end,
    'next_due', case when not evicted and not repeated and not p_leaving and p_queues is not null then
      least((select min(x.wake_at) from outlast.task x where x.wake_at is not null),
        (select min(l.open_at) from outlast.line l, unnest(p_queues, p_lanes) v(queue, lane)
          where l.queue = v.queue and l.lane = v.lane and l.open_at > now)) end,
    'pressure', case when p_pressure then (
      select jsonb_object_agg(q, (select count(*) from (select 1 from outlast.task x
        where x.queue = q and x.lane = 'retry' and x.state = 'pending' and x.parked is null
        limit 10000) few)) from unnest(p_queues) q) end)::text,
    null::text, null::text, null::text, null::text, null::bytea, null::integer, null::integer,
    null::integer, null::integer, null::integer, null::bigint, null::bigint, null::bigint,
    null::text[], null::bigint[], null::text, null::text, null::text, null::text, null::text,
    null::bytea, null::text[], null::bytea[], null::text[], null::bytea[], null::bigint[],
    null::boolean, null::integer, null::bigint;
  if cardinality(picked) > 0 or repeated then
    return query
    with claimed as (
      update outlast.task x set state = 'running', parked = null, fence = p_token, worker = p_worker,
        attempt = x.attempt + 1, number = x.number + 1, started_at = now, updated_at = now,
        version = x.version + 1
      where x.ctid = any(picked)
      returning x.*
    ), told as (
      insert into outlast.event (at, task, attempt, kind, session_id, workflow_id, data)
      select now, x.id, x.number, 'state', x.session_id, x.workflow_id, convert_to(
        '{"status":"running","worker":' || to_json(p_worker) || ',"lane":"' || x.lane || '"}', 'UTF8')
      from claimed x where x.followed
    ), leased as (
      select * from claimed
      union all
      (select * from outlast.task x where repeated and not evicted and not p_leaving
        and x.worker = p_worker and x.fence = p_token and x.state = 'running' order by x.seq)
    )
    select null::text, x.id::text, x.type, x.queue, x.lane, x.payload, x.attempt, x.number,
      x.max_attempts, x.losses, x.priority, x.timeout_ms, x.run_at, x.created_at, x.limits, x.units,
      x.session_id, x.user_id, x.parent_id, x.workflow_id, x.unique_key, x.meta,
      case when x.steps then array(select s.key from outlast.step s where s.task = x.id order by s.n) end,
      case when x.steps then array(select s.value from outlast.step s where s.task = x.id order by s.n) end,
      case when x.inbox then array(select s.name from outlast.signal s where s.task = x.id order by s.n) end,
      case when x.inbox then array(select s.data from outlast.signal s where s.task = x.id order by s.n) end,
      case when x.inbox then array(select s.at from outlast.signal s where s.task = x.id order by s.n) end,
      x.followed, x.max_losses, x.rank
    from leased x;
  end if;
  if lines is not null then
    select array_agg(o) into lines from (
      select l.* from unnest(lines) o
      join outlast.line l on l.key = o.key and l.queue = o.queue and l.lane = o.lane
      where l.open_at <= now and not outlast.somebody_in(l)
      for update of l skip locked
    ) o;
  end if;
  if lines is not null then  -- somebody may have come before they were locked
    delete from outlast.line l using unnest(lines) o
    where l.key = o.key and l.queue = o.queue and l.lane = o.lane and not outlast.somebody_in(l);
  end if;
end $$;

-- The one pass over the gauges, in order of their keys: lock them, then let the attempts of this
-- turn speak, each before its slot is freed.
create or replace function outlast.judge(
  p_now bigint, o_ids uuid[], p_accepted boolean[],
  p_freed_at integer[], p_freed_keys text[], p_freed_tasks uuid[],
  c_at integer[], c_keys text[], c_oks boolean[], c_units bigint[], c_pauses bigint[],
  p_places bigint[], p_more_keys text[]
) returns outlast.gate[] language plpgsql as $$
declare
  gs outlast.gate[] := outlast.gates(coalesce(c_keys, '{}') || p_freed_keys || p_more_keys, true);
  keys text[] := array(select key from unnest(gs));
  -- Those for whom a verdict or units mean anything.
  judged text[] := array(select key from unnest(gs) where volume is not null or rate_units > 0);
  g outlast.gate;
  i integer;
  o record;
  spoken record;
begin
  if c_keys is null or not (judged && c_keys or array_remove(c_pauses, null) <> '{}') then
    -- Nothing but slots to free: key by key, not task by task.
    for o in
      select f.key, count(*) n, array_agg(f.task::text) tasks
      from unnest(p_freed_keys, p_freed_tasks) f(key, task) group by f.key
    loop
      i := array_position(keys, o.key);
      g := gs[i];
      g.used := greatest(g.used - o.n, 0);
      if g.probe = any(o.tasks) then
        g.probe := '';
      end if;
      g.opened := true;
      g.changed := true;
      gs[i] := g;
    end loop;
    return gs;
  end if;
  for o in
    select c.at, c.n, c.key, o_ids[c.at]::text task, c.ok, c.units, c.pause_ms
    from unnest(c_at, c_keys, c_oks, c_units, c_pauses) with ordinality c(at, key, ok, units, pause_ms, n)
    where p_accepted[c.at] and (c.pause_ms is not null or c.key = any(judged))
    union all
    select f.at, null, f.key, f.task::text, null, null, null
    from unnest(p_freed_at, p_freed_keys, p_freed_tasks) f(at, key, task)
    order by 1, 2 nulls last
  loop
    i := array_position(keys, o.key);
    g := gs[i];
    if o.n is null then
      g.used := greatest(g.used - 1, 0);
      g.opened := true;
      if g.probe = o.task then
        g.probe := '';
      end if;
    elsif o.pause_ms is not null then
      g.paused_until := greatest(g.paused_until, p_now + o.pause_ms);
    else
      if o.units > 0 then
        g.tat_us := outlast.spend(g, o.units, p_now);
        g.buckets := outlast.book(g, o.units, p_now);
      end if;
      if o.ok is not null and g.permille is not null then
        spoken := outlast.charge(g, o.task, o.ok, p_now);
        g := spoken.g;
        if spoken.turned is not null then
          g.opened := true;
          insert into outlast.event (seq, at, attempt, kind, data) overriding system value
          values (coalesce(p_places[o.n], nextval('outlast.event_seq_seq')), p_now, 0, 'circuit',
            convert_to('{"key":' || to_json(o.key) || ',"circuit":"' || spoken.turned || '"}', 'UTF8'));
        end if;
      end if;
    end if;
    g.changed := true;
    gs[i] := g;
  end loop;
  return gs;
end $$;

-- The rows to lease, and whether there may be more at once. Each want gets up to its number, in
-- order; then the lanes are emptied in the order of the wants, as far as there is room.
--
-- While somebody holds an old snapshot, the index of ready tasks keeps an entry for everyone that
-- was claimed since, and each look from the beginning passes all of them (60,000: 15 ms). How many
-- it passed is told; a caller that finds it many starts at marks, where its last claim ended, and
-- looks from the beginning now and then.
create or replace function outlast.claim(
  p_now bigint, p_queues text[], p_lanes text[], p_totals integer[], p_spots integer[], p_ns integer[],
  p_room integer, o_ids uuid[], p_accepted boolean[],
  p_freed_at integer[], p_freed_keys text[], p_freed_tasks uuid[],
  c_at integer[], c_keys text[], c_oks boolean[], c_units bigint[], c_pauses bigint[],
  p_places bigint[], p_marks jsonb,
  out picked tid[], out again boolean, out topics text[], out marks jsonb, out passed bigint,
  out lines outlast.line[], out emptied text[]
) language plpgsql as $$
declare
  lanes integer := cardinality(p_queues);
  keys text[];            -- of the gates, in their order
  gs outlast.gate[];
  touched text[] := coalesce(c_keys, '{}') || p_freed_keys;
  line_keys text[];
  line_chunks integer[];
  line_spots integer[] := '{}';
  all_keys text[] := '{}';
  all_chunks integer[] := '{}';
  pool outlast.candidate[] := '{}';              -- everybody that was found, and of each lane:
  ats integer[] := array_fill(1, array[lanes]);  -- who is next
  tos integer[] := array_fill(0, array[lanes]);  -- who is the last one found
  dry boolean[] := array_fill(false, array[lanes]);
  bare boolean[] := array_fill(false, array[lanes]);  -- nobody is left who is ready
  seen boolean[] := array_fill(false, array[lanes]);
  from_priority integer[] := array_fill(-1, array[lanes]);
  from_rank bigint[] := array_fill(-9223372036854775808, array[lanes]);
  from_id uuid[] := array_fill('00000000-0000-0000-0000-000000000000'::uuid, array[lanes]);
  cs outlast.candidate[];
  c outlast.candidate;
  parked_ids uuid[] := '{}';
  parked_keys text[] := '{}';
  parked_spots integer[] := '{}';
  budget integer := p_room + 256;
  room integer := p_room;  -- what is left of it
  need integer;
  asked integer;
  s integer;
  i integer;
  at bigint;
  missing text[];
  fair boolean := false;
  mark jsonb;
  g outlast.gate;
  r record;
begin
  picked := '{}';
  again := false;
  topics := '{}';
  passed := 0;
  for n in 2 .. lanes + 1 loop
    s := case when n > lanes then 1 else n end;  -- the first lane may take what the others leave
    if exists (
        select 1 from outlast.record x where x.kind = 'queue' and x.key = p_queues[s]
          and (x.expires_at is null or x.expires_at > p_now)
          and coalesce((convert_from(x.value, 'UTF8')::jsonb ->> 'paused')::boolean, false)) then
      dry[s] := true;
      continue;
    end if;
    -- Lines that are open, or that this turn may open.
    select coalesce(array_agg(l.key), '{}'),
      coalesce(array_agg(outlast.openings(x, outlast.resolve(l.key), p_room, p_now)), '{}')
    into line_keys, line_chunks
    from (
      select key from outlast.line where line.queue = p_queues[s] and line.lane = p_lanes[s]
        and (open_at <= p_now or key = any(touched))
      order by open_at limit 64
    ) l left join outlast.gauge x on x.key = l.key;
    all_keys := all_keys || line_keys;
    all_chunks := all_chunks || line_chunks;
    line_spots := line_spots || array_fill(s, array[cardinality(line_keys)]);
    need := least(p_totals[s], room);
    continue when need = 0;
    if cardinality(line_keys) = 0 then  -- who waits in a line may stand before the mark
      mark := p_marks -> (p_queues[s] || chr(31) || p_lanes[s]);
      from_priority[s] := coalesce((mark ->> 0)::integer, from_priority[s]);
      from_rank[s] := coalesce((mark ->> 1)::bigint, from_rank[s]);
      from_id[s] := coalesce((mark ->> 2)::uuid, from_id[s]);
    else
      mark := null;
    end if;
    passed := passed - pg_stat_get_xact_tuples_returned('outlast.task_ready'::regclass);
    cs := outlast.candidates(p_queues[s], p_lanes[s], from_priority[s], from_rank[s], from_id[s],
      need, line_keys, line_chunks);
    asked := cardinality(cs);
    passed := passed + pg_stat_get_xact_tuples_returned('outlast.task_ready'::regclass) - asked;
    if asked > 0 then
      from_priority[s] := cs[asked].priority;
      from_rank[s] := cs[asked].rank;
      from_id[s] := cs[asked].id;
    end if;
    if asked < need then
      again := again or mark is not null;  -- nothing more behind it: from the beginning next time
      dry[s] := cardinality(line_keys) = 0;
      bare[s] := dry[s];
    end if;
    room := room - least(asked, need);
    ats[s] := cardinality(pool) + 1;
    pool := pool || cs;
    tos[s] := cardinality(pool);
  end loop;
  missing := touched || all_keys || array(
    select k from unnest(pool) f, unnest(f.limits) k where f.limits is not null);
  if cardinality(missing) > 0 then
    gs := outlast.judge(p_now, o_ids, p_accepted, p_freed_at, p_freed_keys, p_freed_tasks,
      c_at, c_keys, c_oks, c_units, c_pauses, p_places, missing);
    keys := array(select key from unnest(gs));
    topics := outlast.write_gates(gs, p_now);
    room := p_room;
  elsif room = 0 or not false = any(dry) then
    -- Nobody has limits, and the wants get everybody: in which order, the caller knows.
    select coalesce(array_agg(f.row), '{}'), coalesce(bool_or(f.fair), false) into picked, fair
    from unnest(pool) f;
    for n in 1 .. lanes loop
      seen[n] := ats[n] <= tos[n];
      ats[n] := tos[n] + 1;
    end loop;
    room := 0;
  else
    room := p_room;
  end if;
  <<filling>>
  for pass in 1 .. case when room > 0 then 2 else 0 end loop
    for v in 1 .. cardinality(p_spots) loop
      s := p_spots[v];
      need := case when pass = 1 then least(room, p_ns[v]) else room end;
      while need > 0 loop
        if ats[s] > tos[s] then
          exit when dry[s];
          asked := greatest(need, room - (
            select sum(greatest(o.upto - o.at + 1, 0)) from unnest(ats, tos) o(at, upto)));
          cs := outlast.candidates(p_queues[s], p_lanes[s], from_priority[s], from_rank[s], from_id[s],
            asked,
            array(select k from unnest(all_keys, line_spots) l(k, x) where x = s
              and not gs[array_position(keys, k)].refused),
            array(select n from unnest(all_keys, all_chunks, line_spots) l(k, n, x) where x = s
              and not gs[array_position(keys, k)].refused));
          i := cardinality(cs);
          dry[s] := i = 0 or (i < asked and not s = any(line_spots));
          bare[s] := dry[s] and not s = any(line_spots);
          exit when i = 0;
          from_priority[s] := cs[i].priority;
          from_rank[s] := cs[i].rank;
          from_id[s] := cs[i].id;
          ats[s] := cardinality(pool) + 1;
          pool := pool || cs;
          tos[s] := cardinality(pool);
          -- After the gauges nobody is waited for: a key that another turn holds now means "again".
          missing := array(select distinct k from unnest(cs) f, unnest(f.limits) k
            where k <> all(coalesce(keys, '{}')));
          if cardinality(missing) > 0 then
            gs := gs || outlast.gates(missing, false);
            keys := array(select key from unnest(gs));
            if not missing <@ keys then
              again := true;
              exit filling;
            end if;
          end if;
        end if;
        c := pool[ats[s]];
        ats[s] := ats[s] + 1;
        seen[s] := true;
        continue when c.waits is not null and gs[array_position(keys, c.waits)].refused;
        -- All its limits, or none and parked on the first that refuses.
        at := 0;
        for l in 1 .. coalesce(cardinality(c.limits), 0) loop
          i := array_position(keys, c.limits[l]);
          g := gs[i];
          if g.refused then
            at := coalesce(g.refused_at, -1);
          else
            if g.paused_until <= p_now and g.open_until = 0 and coalesce(g.rate_units, 0) = 0
                and (g.volume is null or g.permille is not null) then
              at := case when g.used >= g.slots then -1 else 0 end;  -- admit(), the short way
            else
              at := coalesce(outlast.admit(g, c.units[l], p_now), -1);
            end if;
            continue when at = 0;
            g.refused := true;
            g.refused_at := nullif(at, -1);
            gs[i] := g;
          end if;
          if c.waits is distinct from c.limits[l] then
            budget := budget - 1;
            parked_ids := parked_ids || c.id;
            parked_keys := parked_keys || c.limits[l];
            parked_spots := parked_spots || s;
          end if;
          exit;
        end loop;
        if at <> 0 then
          if budget <= 0 then
            again := true;
            exit filling;
          end if;
          continue;
        end if;
        for l in 1 .. coalesce(cardinality(c.limits), 0) loop
          i := array_position(keys, c.limits[l]);
          g := gs[i];
          g.used := g.used + 1;
          if g.permille is not null and g.open_until <> 0 and p_now >= g.open_until then
            g.probe := c.id::text;
          end if;
          if g.rate_units > 0 then
            g.tat_us := outlast.spend(g, c.units[l], p_now);
          end if;
          g.changed := true;
          gs[i] := g;
        end loop;
        picked := picked || c.row;
        fair := fair or c.fair;
        need := need - 1;
        room := room - 1;
      end loop;
    end loop;
  end loop;
  emptied := array(
    select p.queue from unnest(p_queues, bare) p(queue, bare) where not again
    group by p.queue having count(*) = 2 and bool_and(p.bare));
  if p_marks is not null or passed > 2000 then
    select jsonb_object_agg(p_queues[n] || chr(31) || p_lanes[n], jsonb_build_array(
      pool[ats[n] - 1].priority, pool[ats[n] - 1].rank, pool[ats[n] - 1].id)) into marks
    from generate_series(1, lanes) n where seen[n];
  end if;
  if fair then
    -- The virtual clock of a fair queue: newcomers start where claiming is.
    for r in select x.queue, x.lane, max(x.rank) rank from outlast.task x
        where x.ctid = any(picked) and x.fair_key is not null group by 1, 2 loop
      insert into outlast.fair (queue, lane, key, rank) values (r.queue, r.lane, '', 0)
      on conflict do nothing;
      update outlast.fair f set rank = r.rank where f.rank < r.rank and (f.queue, f.lane, f.key) in (
        select queue, lane, key from outlast.fair
        where queue = r.queue and lane = r.lane and key = '' for update skip locked);
    end loop;
  end if;
  if gs is null then
    return;
  end if;
  update outlast.gauge x set used = n.used, tat_us = n.tat_us, probe = n.probe
  from unnest(gs) n where x.key = n.key and n.changed;
  update outlast.task x set parked = 'limit:' || p.key
  from unnest(parked_ids, parked_keys) p(id, key) where x.id = p.id;
  insert into outlast.line (key, queue, lane)
    select distinct p.key, p_queues[p.s], p_lanes[p.s] from unnest(parked_keys, parked_spots) p(key, s)
    on conflict do nothing;
  update outlast.line l set open_at = n.refused_at
  from unnest(gs) n, unnest(p_queues, p_lanes, seen) p(queue, lane, seen)
  where n.refused and p.seen and l.key = n.key and l.queue = p.queue and l.lane = p.lane;
  select array_agg(row(o.key, p_queues[o.s], p_lanes[o.s], null)::outlast.line) into lines
  from unnest(all_keys, line_spots) o(key, s);
end $$;
