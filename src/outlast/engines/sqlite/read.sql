-- Statements that only read.

-- name: tasks
select t.id, t.type, t.queue, t.lane, t.priority, t.state, t.parked, b.payload, t.result,
  t.attempt, t.number, t.max_attempts, t.losses, t.max_losses, t.timeout_ms, t.overdue_after_ms,
  t.overdue_at, t.max_age_ms, t.run_at, t.created_at, t.started_at, t.updated_at, t.completed_at,
  t.worker, w.lease_until, t.reason, t.fingerprint, t.session_id, t.user_id, t.parent_id,
  t.workflow_id, t.unique_key, t.needs, t.awaits, t.version, b.meta, t.seq, t.error, t.attempts,
  t.progress, t.tags, t.followed, t.limits,
  (select json_group_array(u.id) from edge e join task u on u.seq = e.up where e.down = t.seq)
from task t join body b on b.seq = t.seq left join worker w on w.id = t.worker

-- name: position
select seq, queue, lane, priority, rank, id from task where id = ?

-- name: top
select ifnull(max(seq), 0) + 1 from task

-- name: definitions
select key, value from record where kind = 'limit'

-- name: workers
select w.id, w.info, w.seen_at, w.lease_until, w.lease_mono, w.boot, w.evicted,
  (select count(*) from task t where t.worker = w.id and t.state = 'running')
from worker w order by w.id

-- name: gauge_keys
select key from gauge union select key from line union
select key from record where kind = 'limit' and key not like '%:*' order by 1

-- name: gauge
select used, tat_us, paused_until, open_until, probe, buckets from gauge where key = ?

-- name: waiting
select count(*) from task where parked = ? and state = 'pending'

-- name: leases_with_limits
select id, limits from task where state = 'running' and limits is not null order by started_at

-- name: events
select e.seq, e.kind, e.at, e.data, t.id, e.attempt, t.type, t.queue, e.session_id, e.workflow_id
from event e left join task t on t.seq = e.task

-- name: last_event
select max(ifnull((select seq from sqlite_sequence where name = 'event'), 0),
  (select value from meta where name = 'pruned'))

-- name: pruned
select value from meta where name = 'pruned'

-- name: records
select kind, key, value, version, expires_at from record
where kind = ? and (expires_at is null or expires_at > ?) order by key

-- name: records_by_key
select kind, key, value, version, expires_at from record
where kind = ? and key in (select value from json_each(?)) and (expires_at is null or expires_at > ?)
order by key

-- name: signals
select name, data, at from signal where task = ? order by n

-- name: steps
select key, value, at from step where task = ? order by n

-- name: labels
select name, value from label where seq = ?

-- name: remembered
select s.key, s.value from step s join task t on t.seq = s.task where t.id = ? order by s.n

-- name: inbox
select s.name, s.data, s.at from signal s join task t on t.seq = s.task where t.id = ? order by s.n
