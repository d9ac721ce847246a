-- enqueue: a batch of new tasks, whole or not at all.

-- A plan made while a table was small must not stay when it has grown: hence no sequential scans,
-- here and in the other verbs.

-- Tasks as they come in, defaults filled in, and where each stands at first. doc: an array of tasks,
-- fields as in NewTask, defaults left out.
create or replace function outlast.placed(p_doc jsonb, p_now bigint, p_lines outlast.line[]) returns table (
  n bigint, id uuid, type text, queue text, lane text, priority integer, due bigint, parks text,
  wake_at bigint, awaits integer, needs text, hold text, max_attempts integer, max_losses integer,
  timeout_ms bigint, overdue_after_ms bigint, max_age_ms bigint, keys text[], units bigint[],
  unique_key text, digest text, fair_key text, session_id text, user_id text, parent_id text,
  workflow_id text, tags text[], attrs jsonb, followed boolean, born text
) language sql stable as $$
  select d.n, d.id, d.type, d.queue, d.lane, d.priority, d.due, d.parks,
    case when d.parks = 'time' then d.due end,
    case when d.parks = 'deps' then (
        select count(distinct u)::integer from jsonb_array_elements_text(d.after) u)
      else coalesce((d.parks like 'signal:%')::integer, 0) end,
    d.needs, d.hold, d.max_attempts, d.max_losses, d.timeout_ms, d.overdue_after_ms, d.max_age_ms,
    d.keys, d.units, d.unique_key, d.digest, d.fair_key, d.session_id, d.user_id, d.parent_id,
    d.workflow_id, d.tags, d.attrs, d.followed,
    case when d.followed then outlast.status_of('pending', d.parks, d.lane) end
  from (
    select c.*, case
      when after is not null then 'deps'
      when hold is not null then 'signal:' || hold
      when due > p_now then 'time'
      when p_lines is not null then (
        select 'limit:' || k from unnest(keys) with ordinality u(k, o)
        where exists (select 1 from unnest(p_lines) l
          where l.key = k and l.queue = c.queue and l.lane = c.lane)
        order by o limit 1)
      end parks
    from (
      select t.ordinality n, t.id, t.type, coalesce(t.queue, 'default') queue,
        coalesce(t.lane, 'primary') lane, coalesce(t.priority, 2) priority,
        coalesce(t.run_at, p_now + coalesce(t.delay_ms, 0)) due,
        coalesce(t.needs, 'success') needs, t.after, t.hold,
        coalesce(t.max_attempts, 4) max_attempts, coalesce(t.max_losses, 3) max_losses,
        t.timeout_ms, t.overdue_after_ms, t.max_age_ms,
        (select array_agg(x ->> 0 order by o)
          from jsonb_array_elements(t.limits) with ordinality l(x, o)) keys,
        (select array_agg((x ->> 1)::bigint order by o)
          from jsonb_array_elements(t.limits) with ordinality l(x, o)) units,
        t.unique_key, t.digest, t.fair_key, t.session_id, t.user_id, t.parent_id, t.workflow_id,
        t.tags, t.attrs, coalesce(t.followed, true) followed
      from rows from (jsonb_to_recordset(p_doc) as (
        id uuid, type text, queue text, lane text, priority integer, run_at bigint, delay_ms bigint,
        max_attempts integer, max_losses integer, timeout_ms bigint, overdue_after_ms bigint,
        max_age_ms bigint, limits jsonb, unique_key text, digest text, after jsonb, needs text,
        hold text, session_id text, user_id text, parent_id text, workflow_id text, tags text[],
        attrs jsonb, fair_key text, followed boolean
      )) with ordinality t
    ) c
  ) d
$$;

-- The lines of the limits that tasks name, held against being dropped: who is parked in a line must
-- be found there.
create or replace function outlast.hold_lines(p_doc jsonb) returns outlast.line[] language plpgsql as $$
begin
  return array_agg(l) from (
    select * from outlast.line where key = any(array(
      select x ->> 0 from jsonb_array_elements(p_doc) d, jsonb_array_elements(d -> 'limits') x
    )) for key share
  ) l;
end $$;

-- A batch in which no task has a unique key, a fair key, an upstream or labels, and most are alike:
-- kinds are what they have in common, of says of which kind each is (null: the first). False: some of them are there
-- already, nothing was done, and outlast.enqueue_batch is the one to ask. Half of what that costs:
-- no JSON per task, no speculative inserts, no receipts. The tasks are the left side of a nested
-- loop over few kinds, which keeps their order without a sort.
create or replace function outlast.enqueue_plain(
  p_skew bigint, p_kinds jsonb, p_of integer[], p_ids text, p_payloads bytea[], p_metas bytea[]
) returns boolean language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  now bigint;
  lines outlast.line[];
begin
  perform outlast.begin_log();
  now := outlast.now_ms(p_skew);
  lines := outlast.hold_lines(p_kinds);
  with k as materialized (select * from outlast.placed(p_kinds, now, lines))
  insert into outlast.task (
    id, type, queue, lane, priority, rank, parked, wake_at, awaits, needs, hold, max_attempts,
    max_losses, timeout_ms, overdue_after_ms, overdue_at, max_age_ms, expires_at, run_at,
    created_at, updated_at, limits, units, session_id, user_id, parent_id, workflow_id, followed,
    born, payload, meta
  )
  select t.id, k.type, k.queue, k.lane, k.priority, k.due, k.parks, k.wake_at, k.awaits, k.needs,
    k.hold, k.max_attempts, k.max_losses, k.timeout_ms, k.overdue_after_ms,
    k.due + k.overdue_after_ms, k.max_age_ms, k.due + k.max_age_ms, k.due, now, now, k.keys,
    k.units, k.session_id, k.user_id, k.parent_id, k.workflow_id, k.followed, k.born,
    t.payload, coalesce(t.meta, '{}')
  from unnest(p_of, p_ids::uuid[], p_payloads, p_metas) t(of, id, payload, meta)
  left join k on k.n = coalesce(t.of, 1);
  return true;
exception when unique_violation then
  return false;
end $$;

-- Any batch. Receipts in order. Payload and meta apart, because JSON text may hold what jsonb
-- refuses. plain: no task has a unique key, a fair key or an upstream.
create or replace function outlast.enqueue_batch(
  p_skew bigint, p_doc jsonb, p_payloads bytea[], p_metas bytea[], p_plain boolean,
  p_now bigint default null
) returns table (id uuid, existing boolean, digest text)
language plpgsql
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off
as $$
declare
  now bigint;
  ups uuid[];
  lines outlast.line[];
  taken boolean[];
  stands bigint[];
  ids uuid[];
  digests text[];
  existed boolean[];
begin
  perform outlast.begin_log();
  if not p_plain then
    select array_agg(distinct u.id::uuid) into ups
    from jsonb_array_elements(p_doc) d, jsonb_array_elements_text(d -> 'after') u(id);
    -- Whoever ends one of them meanwhile waits here, and then sees the edge.
    perform 1 from outlast.task t where t.id = any(ups) order by t.id for no key update;
  end if;
  now := coalesce(p_now, outlast.now_ms(p_skew));
  lines := outlast.hold_lines(p_doc);
  if not p_plain then
    select * into taken, stands, ids, digests from outlast.reserve(p_doc, now);
  end if;
  with new as (
    select * from outlast.placed(p_doc, now, lines)
  ), added as (
    insert into outlast.task (
      id, type, queue, lane, priority, rank, parked, wake_at, awaits, needs, hold, max_attempts,
      max_losses, timeout_ms, overdue_after_ms, overdue_at, max_age_ms, expires_at, run_at,
      created_at, updated_at, limits, units, fair_key, session_id, user_id, parent_id, workflow_id,
      unique_key, tags, followed, born, payload, meta, dependents
    )
    select p.id, p.type, p.queue, p.lane, p.priority, coalesce(stands[p.n], p.due), p.parks,
      p.wake_at, p.awaits, p.needs, p.hold, p.max_attempts, p.max_losses, p.timeout_ms,
      p.overdue_after_ms, p.due + p.overdue_after_ms, p.max_age_ms, p.due + p.max_age_ms, p.due,
      now, now, p.keys, p.units, p.fair_key, p.session_id, p.user_id, p.parent_id, p.workflow_id,
      p.unique_key, p.tags, p.followed, p.born, p_payloads[p.n], p_metas[p.n],
      p.id in (select unnest(ups))
    from (select * from new order by n) p
    where taken is null or taken[p.n]
    on conflict do nothing
    returning task.id
  ), labelled as (
    insert into outlast.label (name, value, task)
    select distinct l.name, l.value, a.id from added a join new n on n.id = a.id
    cross join lateral (
      select 'tag' as name, tag as value from unnest(n.tags) tag
      union all
      select 'attr.' || (x ->> 0), x ->> 1 from jsonb_array_elements(n.attrs) x
    ) l
    where n.tags is not null or n.attrs is not null
    on conflict do nothing
  )
  select array_agg(r.id order by r.n), array_agg(r.existing order by r.n),
    array_agg(case when r.existing then digests[r.n] else r.digest end order by r.n)
  into ids, existed, digests
  from (
    select coalesce(ids[n.n], n.id) id, n.digest, n.n,
      a.id is null or not coalesce(taken[n.n], true)
        or (taken is null and n.n <> min(n.n) over (partition by n.id)) existing
    from new n left join added a on a.id = n.id
  ) r;
  if ups is not null then
    perform outlast.connect_batch(p_doc, existed, now);
  end if;
  return query select * from unnest(ids, existed, digests);
end $$;

-- Which tasks of a batch are new (taken), where they stand, and who is there instead of the others.
create or replace function outlast.reserve(
  p_doc jsonb, p_now bigint,
  out taken boolean[], out stands bigint[], out ids uuid[], out digests text[]
) language plpgsql as $$
declare
  d jsonb;
  n integer;
  firsts integer[];  -- where the batch has the same id first
  r outlast.reservation;
  due bigint;
begin
  select array_agg(x.id order by x.n), array_agg(t.id is null and x.first = x.n order by x.n),
    array_agg(x.first order by x.n)
  into ids, taken, firsts
  from (
    select a.n, (e ->> 'id')::uuid id, min(a.n) over (partition by e ->> 'id') first
    from jsonb_array_elements(p_doc) with ordinality a(e, n)
  ) x left join outlast.task t on t.id = x.id;
  for d, n in
    select e, a.n from jsonb_array_elements(p_doc) with ordinality a(e, n)
    where e ->> 'unique_key' is not null order by e ->> 'unique_key', a.n
  loop
    if firsts[n] < n then
      ids[n] := ids[firsts[n]];
      digests[n] := digests[firsts[n]];
    end if;
    continue when not taken[n];
    -- Not `do update where`: that locks also the key of another, whose end would wait for our commit.
    loop
      insert into outlast.reservation (key, task, until, digest)
      values (d ->> 'unique_key', ids[n], p_now + (d ->> 'unique_for_ms')::bigint, d ->> 'digest')
      on conflict do nothing;
      exit when found;
      update outlast.reservation set task = ids[n], until = p_now + (d ->> 'unique_for_ms')::bigint,
        digest = d ->> 'digest'
      where key = d ->> 'unique_key' and until <= p_now;
      exit when found;
      select * into r from outlast.reservation where key = d ->> 'unique_key';
      continue when not found;  -- given up meanwhile
      taken[n] := false;
      ids[n] := r.task;
      digests[n] := r.digest;
      exit;
    end loop;
  end loop;
  perform 1 from outlast.fair f
  where (f.queue, f.lane, f.key) in (
    select coalesce(e ->> 'queue', 'default'), coalesce(e ->> 'lane', 'primary'), 'k' || (e ->> 'fair_key')
    from jsonb_array_elements(p_doc) e where e ? 'fair_key')
  order by f.queue, f.lane, f.key for update;
  for d, n in
    select e, a.n from jsonb_array_elements(p_doc) with ordinality a(e, n)
    where e ? 'fair_key' and not e ? 'after' and not e ? 'hold' and taken[a.n] order by a.n
  loop
    due := coalesce((d ->> 'run_at')::bigint, p_now + coalesce((d ->> 'delay_ms')::bigint, 0));
    if due <= p_now then
      stands[n] := outlast.rank_of(coalesce(d ->> 'queue', 'default'),
        coalesce(d ->> 'lane', 'primary'), d ->> 'fair_key', due);
    end if;
  end loop;
end $$;

-- The edges of new tasks, to tasks of the batch or to older ones.
create or replace function outlast.connect_batch(p_doc jsonb, p_existed boolean[], p_now bigint) returns void
language plpgsql as $$
declare
  pairs_up uuid[];
  pairs_down uuid[];
  older uuid[];
  missing uuid;
  told uuid[];  -- of whose upstreams some are over
  t outlast.task;
begin
  select array_agg(up), array_agg(down) into pairs_up, pairs_down from (
    select distinct u.id::uuid up, (d.e ->> 'id')::uuid down
    from jsonb_array_elements(p_doc) with ordinality d(e, n), jsonb_array_elements_text(d.e -> 'after') u(id)
    where not p_existed[d.n]
  ) pairs;
  older := array(
    select unnest(pairs_up) except
    select (d.e ->> 'id')::uuid from jsonb_array_elements(p_doc) with ordinality d(e, n)
    where not p_existed[d.n]);
  -- Some may have come after those that were there had been locked.
  perform 1 from outlast.task x where x.id = any(older) order by x.id for no key update;
  select up into missing from unnest(older) up
  where not exists (select 1 from outlast.task x where x.id = up) order by up limit 1;
  if missing is not null then
    raise exception 'after= names a task that does not exist: %', missing
      using errcode = 'OL001', column = 'after';
  end if;
  with new as (
    insert into outlast.edge (up, down, done)
      select p.up, p.down, x.state not in ('pending', 'running')
      from unnest(pairs_up, pairs_down) p(up, down) join outlast.task x on x.id = p.up
      on conflict do nothing
      returning down, done
  )
  select array_agg(distinct down) into told from new where done;
  update outlast.task set dependents = true
  where id = any(older) and state in ('pending', 'running') and not dependents;
  update outlast.task x set awaits = (select count(*) from outlast.edge e where e.down = x.id and not e.done)
  where id = any(told);
  -- One at a time: cancelling one may have cancelled the next.
  for t in select * from outlast.task x where x.id = any(told) order by x.seq loop
    select * into t from outlast.task x where x.id = t.id;
    continue when t.state <> 'pending' or t.parked is distinct from 'deps';
    if t.needs = 'success' and exists (
        select 1 from outlast.edge e join outlast.task u on u.id = e.up
        where e.down = t.id and u.state in ('dead', 'cancelled')) then
      perform outlast.finish(t, 'cancelled', p_now, 'upstream');
    elsif t.awaits = 0 then
      perform outlast.unpark(t, p_now);
    end if;
  end loop;
end $$;

-- A hint for whoever waits, at the commit of somebody else's transaction. Commits that notify go one
-- by one through the whole cluster, so only one at a time does: those beside it are found by the next
-- hint, or within a second.
create or replace function outlast.hint(p_doc jsonb) returns void language sql as $$
  select pg_notify('outlast_' || rtrim('outlast.', '.'),
    case when octet_length(topics::text) < 7900 then topics::text else '["", "*"]' end)
  from (
    select '["", "log"]' || jsonb_agg(distinct 'queue:' || coalesce(e ->> 'queue', 'default')) topics
    from jsonb_array_elements(p_doc) e
  ) t
  where topics is not null and pg_try_advisory_xact_lock(hashtextextended('outlast.hint', 0))
$$;

-- The same inside somebody else's transaction: bad input is an answer, not the end of it.
create or replace function outlast.enqueue_within(
  p_skew bigint, p_doc jsonb, p_payloads bytea[], p_metas bytea[], p_plain boolean
) returns table (id uuid, existing boolean, digest text, refused text) language plpgsql as $$
begin
  return query select e.id, e.existing, e.digest, null::text
    from outlast.enqueue_batch(p_skew, p_doc, p_payloads, p_metas, p_plain) e;
  perform outlast.hint(p_doc);
exception when sqlstate 'OL001' then
  return query select null::uuid, null::boolean, null::text, sqlerrm;
end $$;

-- A UUIDv7.
create or replace function outlast.new_id() returns uuid language sql volatile as $$
  select (lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
    || substr(md5(gen_random_uuid()::text), 1, 3)
    || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid
$$;

-- Why nobody could run such a task as it was meant, or null: no client has looked at these options.
create or replace function outlast.misfit(p_type text, p_payload jsonb, o jsonb) returns text
language plpgsql immutable as $$
begin
  return case
    when coalesce(p_type, '') = '' then 'a task needs a type'
    when p_payload is null then 'a task needs a payload: {} if it takes none'
    when jsonb_typeof(o) is distinct from 'object' then 'options are an object, as {"queue": "reports"}'
    when exists (select 1 from jsonb_object_keys(o) k where k <> all(outlast.option_names())) then (
      select format('unknown: %s; known are %s', string_agg(k, ', '),
        array_to_string(outlast.option_names(), ', '))
      from jsonb_object_keys(o) k where k <> all(outlast.option_names()))
    when o ->> 'queue' = '' then 'queue is a name'
    when o ->> 'lane' not in ('primary', 'retry') then 'lane is primary or retry'
    when o ->> 'needs' not in ('success', 'any') then 'needs is success or any'
    when (o ->> 'priority')::integer not between 0 and 32767 then
      'priority is a number from 0 (first) to 32767'
    when least((o ->> 'delay_ms')::bigint, (o ->> 'run_at')::bigint) < 0 then
      'delay_ms and run_at are milliseconds, 0 or more'
    when least((o ->> 'max_attempts')::integer, (o ->> 'max_losses')::integer,
        (o ->> 'timeout_ms')::bigint, (o ->> 'overdue_after_ms')::bigint,
        (o ->> 'max_age_ms')::bigint, (o ->> 'unique_for_ms')::bigint) < 1 then
      'max_attempts, max_losses and spans in milliseconds are 1 or more'
    when jsonb_typeof(o -> 'after') <> 'array' then 'after is a list of ids'
    when o -> 'after' ? lower(o ->> 'id') then 'a task cannot come after itself'
    when jsonb_typeof(o -> 'limits') <> 'array' then 'limits are a list of keys with units, [["llm", 1]]'
    when exists (
      select 1 from jsonb_array_elements(o -> 'limits') x
      where case when jsonb_typeof(x) = 'array' then jsonb_array_length(x) <> 2
          or jsonb_typeof(x -> 0) <> 'string' or (x ->> 1)::bigint < 0 or x ->> 1 is null
        else true end) then 'limits are a list of keys with units, [["llm", 1]]'
  end;
end $$;

create or replace function outlast.option_names() returns text[] language sql immutable parallel safe as $$
  select '{id,queue,lane,priority,run_at,delay_ms,max_attempts,max_losses,timeout_ms,overdue_after_ms,
    max_age_ms,limits,unique_key,unique_for_ms,digest,after,needs,hold,session_id,user_id,parent_id,
    workflow_id,tags,attrs,fair_key,followed}'::text[]
$$;

-- For any language, inside its own transaction:
--   select outlast.enqueue('report.generate', '{"month": 7}', '{"queue": "reports", "priority": 1}')
-- The options are the fields of a task; null is left out.
create or replace function outlast.enqueue(p_type text, p_payload jsonb, p_options jsonb default '{}')
returns uuid language plpgsql as $$
declare
  options jsonb := jsonb_strip_nulls(p_options);
  doc jsonb := jsonb_build_array(jsonb_build_object('id', outlast.new_id()) || options
    || jsonb_build_object('type', p_type));
  why text := outlast.misfit(p_type, p_payload, options);
begin
  if why is not null then
    raise exception 'outlast.enqueue: %', why using errcode = 'OL001';
  end if;
  perform outlast.hint(doc);
  return (select e.id from outlast.enqueue_batch(0, doc, array[convert_to(p_payload::text, 'UTF8')],
    array['{}'::bytea], false) e);
end $$;
