-- Statements of dump and load. Places: key for records and gauges, rowid for the rest.

-- name: dump_record
select kind || char(0) || key, kind, key, value, version, expires_at from record
where kind || char(0) || key > ? order by 1 limit ?

-- name: dump_gauge
select key, used, tat_us, paused_until, open_until, probe, buckets from gauge
where key > ? order by key limit ?

-- name: dump_task
select seq, id, fair_key, hold, wake_at, overdue from task where seq > ? order by seq limit ?

-- name: dump_edge
select e.down, u.id, d.id, e.done from edge e join task u on u.seq = e.up join task d on d.seq = e.down
where e.down > ? and e.down <= (
  select ifnull(max(down), 0) from (select distinct down from edge where down > ? order by down limit ?)
) order by e.down, e.up

-- name: load_task
insert or ignore into task (
  id, type, queue, lane, priority, rank, state, parked, wake_at, awaits, needs, hold, attempt, number,
  max_attempts, losses, max_losses, timeout_ms, overdue_after_ms, overdue_at, overdue, max_age_ms,
  expires_at, run_at, created_at, started_at, updated_at, completed_at, limits, fair_key, session_id,
  user_id, parent_id, workflow_id, unique_key, tags, followed, streamed, dependents, steps, inbox,
  version, reason, fingerprint, progress, attempts, error, result
) values (
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, 0, 0, ?, ?,
  ?, ?, ?, ?, ?, ?, ?
)

-- name: load_step
insert or ignore into step (task, key, value, at, n) values (?, ?, ?, ?, ?)

-- name: load_signal
insert or ignore into signal (task, n, name, data, at) values (?, ?, ?, ?, ?)

-- name: load_record
insert or ignore into record (kind, key, value, version, expires_at) values (?, ?, ?, ?, ?)

-- name: load_gauge
insert or ignore into gauge (key, used, tat_us, paused_until, open_until, probe, buckets)
values (?, 0, ?, ?, ?, '', ?)

-- name: load_event
insert into event (task, kind, attempt, at, session_id, workflow_id, data)
values ((select seq from task where id = ?), ?, ?, ?, ?, ?, ?)

-- name: loaded_events
select value from meta where name = 'loaded_events'

-- name: set_loaded_events
insert or replace into meta (name, value) values ('loaded_events', ?)

-- name: load_line
insert or ignore into line (key, queue, lane, open_at) values (?, ?, ?, ?)
