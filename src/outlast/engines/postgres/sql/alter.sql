-- alter: what people and programs do to a task from outside.

-- One answer per id, in order.
create or replace function outlast.alter(
  p_skew bigint, p_ids uuid[], p_kind text, p_args jsonb, p_body bytea
) returns table (id text, applied boolean, why text, state text, topics text[])
language plpgsql set jit = off set enable_seqscan = off as $$
declare
  now bigint;
  t outlast.task;
begin
  perform outlast.begin_log();
  perform 1 from outlast.task x where x.id = any(p_ids) order by x.id for update;
  now := outlast.now_ms(p_skew);
  for n in 1 .. cardinality(p_ids) loop
    id := p_ids[n]::text;
    state := null;
    topics := '{}';
    select * into t from outlast.task x where x.id = p_ids[n];
    if t.id is null then
      why := 'not_found';
    else
      state := t.state;
      select c.why, c.topics into why, topics
      from outlast.change(t, p_kind, p_args, p_body, now) c;
    end if;
    applied := why is null;
    return next;
  end loop;
end $$;

-- Apply it, or say why not.
create or replace function outlast.change(
  t outlast.task, p_kind text, p_args jsonb, p_body bytea, p_now bigint,
  out why text, out topics text[]
) language plpgsql as $$
declare
  r outlast.reservation;
  retrying boolean := t.state = 'pending' and t.parked = 'time' and t.lane = 'retry';
begin
  topics := array['task:' || t.id, 'log'];
  case p_kind
  when 'Cancel' then
    if t.state = 'running' then
      update outlast.task set cancel = p_args ->> 'reason', reason = p_args ->> 'reason',
        updated_at = p_now, version = version + 1 where id = t.id;
      topics := topics || ('worker:' || t.worker);
    elsif t.state = 'pending' then
      topics := topics || outlast.finish(t, 'cancelled', p_now, p_args ->> 'reason');
    else
      why := 'state';
    end if;
  when 'Redrive' then
    if retrying then
      if p_body is not null then
        perform outlast.edit(t, p_body, p_args -> 'attrs', p_now);
      end if;
      topics := topics || outlast.reschedule(t, p_now + (p_args ->> 'delay_ms')::bigint, p_now);
      return;
    elsif t.state not in ('dead', 'cancelled') then
      why := 'state';
      return;
    end if;
    if not outlast.retakes_key(t, p_now) then
      why := 'unique';
      return;
    end if;
    if p_body is not null then
      perform outlast.edit(t, p_body, p_args -> 'attrs', p_now);
    end if;
    topics := topics || outlast.revive(t, p_now + (p_args ->> 'delay_ms')::bigint, p_now);
    perform outlast.restore_dependents(t, p_now);
  when 'Reschedule' then
    if t.state <> 'pending' or coalesce(t.parked, 'time') <> 'time' then
      why := 'state';
    else
      topics := topics || outlast.reschedule(t, coalesce((p_args ->> 'run_at')::bigint,
        p_now + (p_args ->> 'delay_ms')::bigint), p_now);
    end if;
  when 'Reprioritize' then
    if t.state <> 'pending' then
      why := 'state';
    else
      update outlast.task set priority = (p_args ->> 'priority')::integer, updated_at = p_now,
        version = version + 1 where id = t.id;
    end if;
  when 'EditPayload' then
    if t.state in ('running', 'completed') then
      why := 'state';
    else
      perform outlast.edit(t, p_body, p_args -> 'attrs', p_now);
    end if;
  when 'Resolve' then
    if t.state not in ('pending', 'dead') then
      why := 'state';
    else
      if t.state = 'dead' then
        perform outlast.restore_dependents(t, p_now);
      end if;
      topics := topics || outlast.finish(t, 'completed', p_now, p_args ->> 'reason',
        p_result => p_body);
    end if;
  when 'Signal' then
    if t.state not in ('pending', 'running') then
      why := 'state';
    else
      topics := topics || outlast.signalled(t, p_args ->> 'name', p_body, p_now);
    end if;
  when 'Forget' then
    if t.state = 'running' then
      why := 'state';
    else
      topics := topics || outlast.forget(t, p_now);
    end if;
  end case;
end $$;

create or replace function outlast.edit(t outlast.task, p_payload bytea, p_attrs jsonb, p_now bigint)
returns void language plpgsql as $$
begin
  update outlast.task set payload = p_payload, updated_at = p_now, version = version + 1
  where id = t.id;
  if jsonb_typeof(p_attrs) = 'array' then
    delete from outlast.label where task = t.id and name like 'attr.%';
    insert into outlast.label (name, value, task)
      select distinct 'attr.' || (x ->> 0), x ->> 1, t.id from jsonb_array_elements(p_attrs) x;
  end if;
end $$;

create or replace function outlast.reschedule(t outlast.task, p_run_at bigint, p_now bigint) returns text[]
language plpgsql as $$
declare
  p record;
begin
  t.hold := null;
  p := outlast.place(t, p_run_at, p_now);
  update outlast.task set parked = p.parked, wake_at = p.wake_at, awaits = 0, rank = p.rank,
    run_at = p_run_at, hold = null, overdue_at = p_run_at + overdue_after_ms,
    expires_at = p_run_at + max_age_ms, updated_at = p_now, version = version + 1
  where id = t.id;
  if t.followed then
    perform outlast.log(t, 'state', p_now, '{"status":"'
      || outlast.status_of('pending', p.parked, t.lane) || '","run_at":' || p_run_at || '}');
  end if;
  return array['queue:' || t.queue];
end $$;

-- Pending again, in the retry lane, with fresh budgets; the history stays.
create or replace function outlast.revive(t outlast.task, p_run_at bigint, p_now bigint) returns text[]
language plpgsql as $$
declare
  p record;
  waits integer;
begin
  t.lane := 'retry';
  select count(*) into waits from outlast.edge where down = t.id and not done;
  if waits > 0 then
    select 'deps' parked, null::bigint wake_at, waits awaits, p_run_at rank into p;
  else
    p := outlast.place(t, p_run_at, p_now);
  end if;
  update outlast.task set state = 'pending', parked = p.parked, wake_at = p.wake_at,
    awaits = p.awaits, lane = 'retry', rank = p.rank, run_at = p_run_at, attempt = 0, losses = 0,
    completed_at = null, reason = null, result = null, overdue = false,
    overdue_at = p_run_at + overdue_after_ms, expires_at = p_run_at + max_age_ms,
    last_fence = null, updated_at = p_now, version = version + 1
  where id = t.id;
  perform outlast.log(t, 'state', p_now, '{"status":"'
    || outlast.status_of('pending', p.parked, 'retry') || '","redriven":true}');
  return array['queue:' || t.queue];
end $$;

-- It may have come when they were over already, and none of them expected to tell it.
create or replace function outlast.mark_upstreams(p_down uuid) returns void language plpgsql as $$
begin
  update outlast.task set dependents = true where not dependents
    and id = any(array(select up from outlast.edge where down = p_down and not done));
end $$;

-- Is its unique key the task's again? Not when another has taken it meanwhile.
create or replace function outlast.retakes_key(t outlast.task, p_now bigint) returns boolean
language plpgsql as $$
begin
  if t.unique_key is null then
    return true;
  end if;
  insert into outlast.reservation as x (key, task) values (t.unique_key, t.id)
  on conflict (key) do update set task = excluded.task, until = null, digest = null
    where x.until <= p_now;
  return found or exists (
    select 1 from outlast.reservation x where x.key = t.unique_key and x.task = t.id);
end $$;

-- Those that its end had cancelled wait for it again; those that still wait, wait for it too. A
-- dependent stays cancelled while another of its upstreams is dead or cancelled, and when its
-- unique key has been taken meanwhile. One may have fallen before this upstream has told it.
create or replace function outlast.restore_dependents(t outlast.task, p_now bigint) returns void
language plpgsql as $$
declare
  ups uuid[] := array[t.id];
  this uuid;
  downs uuid[];
  d outlast.task;
begin
  while cardinality(ups) > 0 loop
    this := ups[1];
    ups := ups[2:];
    delete from outlast.unsettled where task = this;
    downs := array(select down from outlast.edge where up = this);
    continue when cardinality(downs) = 0;
    -- They may have come when it was over already, and nobody expected to tell them again.
    update outlast.task set dependents = true where id = this and not dependents;
    for d in select * from outlast.task where id = any(downs) order by id for update loop
      if d.state = 'pending' and d.parked = 'deps' then
        update outlast.edge set done = false where up = this and down = d.id and done;
        continue when not found;
        perform outlast.mark_upstreams(d.id);
        update outlast.task set awaits = awaits + 1 where id = d.id;
        continue;
      end if;
      continue when d.state <> 'cancelled' or d.reason is distinct from 'upstream';
      -- Whoever of the others ends meanwhile waits here, and then sees that somebody waits.
      perform 1 from outlast.task u where u.id = any(array(
        select e.up from outlast.edge e where e.down = d.id)) order by u.id for no key update;
      continue when exists (
        select 1 from outlast.edge e join outlast.task u on u.id = e.up
        where e.down = d.id and u.state in ('dead', 'cancelled') and e.up not in (t.id, this));
      continue when not outlast.retakes_key(d, p_now);
      update outlast.edge e set done = e.up not in (t.id, this) and (
        select u.state not in ('pending', 'running') from outlast.task u where u.id = e.up)
      where e.down = d.id;
      perform outlast.mark_upstreams(d.id);
      update outlast.task set state = 'pending', parked = 'deps', wake_at = null,
        awaits = (select count(*) from outlast.edge e where e.down = d.id and not e.done),
        completed_at = null, reason = null, updated_at = p_now, version = version + 1
      where id = d.id;
      perform outlast.log(d, 'state', p_now, '{"status":"blocked","redriven":true}');
      ups := ups || d.id;
    end loop;
  end loop;
end $$;

create or replace function outlast.signalled(t outlast.task, p_name text, p_data bytea, p_now bigint)
returns text[] language plpgsql as $$
begin
  insert into outlast.signal (task, n, name, data, at)
  select t.id, coalesce(max(n), 0) + 1, p_name, p_data, p_now from outlast.signal where task = t.id;
  update outlast.task set inbox = true, updated_at = p_now, version = version + 1 where id = t.id;
  perform outlast.log(t, 'signal', p_now, '{"name":' || to_json(p_name) || '}');
  if t.state = 'pending' and t.parked = 'signal:' || p_name and t.awaits <= (
      select count(*) from outlast.signal where task = t.id and name = p_name) then
    if t.hold is null then
      t.run_at := p_now;  -- it waited in the middle of its work: go on at once
    end if;
    t.hold := null;
    update outlast.task set hold = null where id = t.id;
    return outlast.unpark(t, p_now);
  end if;
  return '{}';
end $$;

-- A task and all that belongs to it; who waits for it is told first.
create or replace function outlast.forget(t outlast.task, p_now bigint) returns text[] language plpgsql as $$
declare
  topics text[] := array['task:' || t.id];
begin
  if t.state = 'pending' then
    topics := topics || outlast.finish(t, 'cancelled', p_now, 'forgotten');
  end if;
  topics := topics
    || (outlast.settle(t.id, t.state = 'completed', 1000000, p_now, p_wait => true)).topics;
  delete from outlast.task where id = t.id;
  delete from outlast.label where task = t.id;
  delete from outlast.edge where up = t.id;
  delete from outlast.edge where down = t.id;
  delete from outlast.unsettled where task = t.id;
  delete from outlast.signal where task = t.id;
  delete from outlast.step where task = t.id;
  delete from outlast.event where task = t.id;
  delete from outlast.reservation where key = t.unique_key and task = t.id;
  return topics;
end $$;
