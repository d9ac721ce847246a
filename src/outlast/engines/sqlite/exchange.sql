-- Statements of exchange: apply outcomes, unpark what is due, claim.
-- Tables task, body, line, gauge, worker, step, signal, record.

-- name: held
select * from held where id in (select value from json_each(?))

-- name: held_by_seq
select * from held where seq in (select value from json_each(?))

-- name: go_on
update task set progress = coalesce(?, progress), streamed = streamed or ?,
  updated_at = ?, version = version + 1
where seq = ?

-- name: finish
update task set state = ?1, reason = ?2, completed_at = ?3, result = ?4,
  error = iif(?1 = 'completed', null, coalesce(?5, error)),
  fingerprint = iif(?1 = 'completed', null, coalesce(?6, fingerprint)),
  attempts = ?7, progress = coalesce(?8, progress), fence = null, last_fence = ?9, worker = null,
  cancel = null, streamed = 0, parked = null, wake_at = null, awaits = 0,
  attempt = attempt - ?10, updated_at = ?11, version = version + 1
where seq = ?12

-- name: put_back
update task set state = 'pending', parked = ?, wake_at = ?, awaits = ?, lane = ?, rank = ?, run_at = ?,
  attempt = attempt - ?, losses = losses + ?, error = coalesce(?, error),
  fingerprint = coalesce(?, fingerprint), attempts = ?, progress = coalesce(?, progress),
  timeout_ms = coalesce(?, timeout_ms), expires_at = coalesce(? + max_age_ms, expires_at),
  fence = null, last_fence = ?, worker = null, cancel = null, streamed = 0, hold = null, updated_at = ?,
  version = version + 1
where seq = ?

-- name: add_step
insert or ignore into step (task, key, value, at, n)
values (?, ?, ?, ?, (select count(*) from step where task = ?))

-- name: has_steps
update task set steps = 1 where seq = ?

-- name: unpark_due
update task set parked = null, wake_at = null, awaits = 0, rank = wake_at
where seq in (select seq from task where wake_at <= ? order by wake_at limit ?)
returning seq, queue, lane, fair_key

-- name: set_rank
update task set rank = ? where seq = ?

-- name: place
update task set parked = ?, wake_at = ?, awaits = ?, rank = ?, version = version + 1 where seq = ?

-- name: next_wake
select min(wake_at) from task where wake_at is not null

-- name: next_line
select min(open_at) from line where queue = ? and lane = ? and open_at > ?

-- name: queue_records
select key, value from record where kind = 'queue' and key in (select value from json_each(?))

-- name: ready
select seq, priority, rank, id, limits from task
where queue = ? and lane = ? and state = 'pending' and parked is null
  and (priority, rank, id) > (?, ?, ?)
order by priority, rank, id limit ?

-- name: waiting
select seq, priority, rank, id, limits from task
where parked = ? and queue = ? and lane = ? and state = 'pending'
  and (priority, rank, id) > (?, ?, ?)
order by priority, rank, id limit ?

-- name: open_lines
select key from line where queue = ? and lane = ? and open_at <= ? order by open_at limit ?

-- name: close_line
update line set open_at = ? where key = ? and queue = ? and lane = ?

-- name: drop_line
delete from line where key = ? and queue = ? and lane = ?

-- name: open_key
update line set open_at = ? where key = ? and (open_at is null or open_at > ?)
returning queue

-- name: add_line
insert into line (key, queue, lane, open_at) values (?, ?, ?, ?)
on conflict (key, queue, lane) do nothing

-- name: park_on_limit
update task set parked = ? where seq = ?

-- name: claim
update task set state = 'running', parked = null, fence = ?, worker = ?, attempt = attempt + 1,
  number = number + 1, started_at = ?, updated_at = ?, version = version + 1
where seq in (select value from json_each(?))

-- name: leased
select t.seq, t.id, t.type, t.queue, t.lane, t.attempt, t.number, t.max_attempts, t.losses, t.priority,
  t.timeout_ms, t.run_at, t.created_at, t.limits, t.session_id, t.user_id, t.parent_id, t.workflow_id,
  t.unique_key, b.payload, b.meta, t.followed, t.steps, t.inbox, t.fair_key, t.rank, t.max_losses
from task t join body b on b.seq = t.seq
where t.seq in (select value from json_each(?))

-- name: leased_again
select seq from task where worker = ? and fence = ? and state = 'running' order by seq

-- name: steps
select key, value from step where task = ? order by n

-- name: inbox
select name, data, at from signal where task = ? order by n

-- name: cancelled
select id, cancel from task where worker = ? and state = 'running' and cancel is not null

-- name: retries_ready
select count(*) from (
  select 1 from task where queue = ? and lane = 'retry' and state = 'pending' and parked is null
  limit ?
)

-- name: gauge
select used, tat_us, paused_until, open_until, probe, buckets from gauge where key = ?

-- name: set_gauge
insert or replace into gauge (key, used, tat_us, paused_until, open_until, probe, buckets)
values (?, ?, ?, ?, ?, ?, ?)

-- name: worker
select info, evicted, tokens from worker where id = ?

-- name: renew
insert into worker (id, info, seen_at, lease_until, lease_mono, boot, evicted, tokens)
values (?, ?, ?, ?, ?, ?, 0, ?)
on conflict (id) do update set info = excluded.info, seen_at = excluded.seen_at,
  lease_until = excluded.lease_until, lease_mono = excluded.lease_mono, boot = excluded.boot,
  tokens = excluded.tokens

-- name: drop_worker
delete from worker where id = ?

-- name: held_by_worker
select * from held where worker = ? and state = 'running' limit ?

-- name: add_event
insert into event (task, kind, attempt, at, session_id, workflow_id, data) values (?, ?, ?, ?, ?, ?, ?)

-- name: wait_for
insert or replace into edge (up, down, done) values (?, ?, ?)

-- name: dependents
select up, down from edge
where up in (select value from json_each(?)) and done = 0 order by up, down limit ?

-- name: edge_done
update edge set done = 1 where up = ? and down = ?

-- name: set_awaits
update task set awaits = ? where seq = ?

-- name: later
insert or ignore into unsettled (seq) values (?)

-- name: release_key
delete from reservation where key = ? and task_id = ? and until is null

-- name: signals_named
select count(*) from signal where task = ? and name = ?
