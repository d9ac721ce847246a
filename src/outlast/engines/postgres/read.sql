-- Statements that only read.

-- name: tasks
select t.id::text, t.type, t.queue, t.lane, t.priority, t.state, t.parked, t.payload, t.result,
  t.attempt, t.number, t.max_attempts, t.losses, t.max_losses, t.timeout_ms, t.overdue_after_ms,
  t.overdue_at, t.max_age_ms, t.run_at, t.created_at, t.started_at, t.updated_at, t.completed_at,
  t.worker, w.lease_until, t.reason, t.fingerprint, t.session_id, t.user_id, t.parent_id,
  t.workflow_id, t.unique_key, t.needs, t.awaits, t.version, t.meta, t.seq, t.error, t.attempts,
  t.progress, t.tags, t.followed, t.limits, t.units,
  outlast.ups_of(t.id), %now
from %tasks t left join outlast.worker w on w.id = t.worker

-- name: position
select queue, lane, priority, rank from outlast.task where id = $1

-- name: top
select coalesce(max(seq), 0) + 1 from outlast.task

-- name: definitions
select key, value from outlast.record where kind = 'limit'

-- name: workers
select w.id, w.info, w.seen_at, w.lease_until, w.evicted,
  (select count(*) from outlast.task t where t.worker = w.id and t.state = 'running')
from outlast.worker w order by w.id

-- name: gauge_keys
select key from outlast.gauge union select key from outlast.line union
select key from outlast.record where kind = 'limit' and key not like '%:*' order by 1

-- name: gauges
select k, g.used, g.tat_us, g.paused_until, g.open_until, g.probe, g.buckets,
  (select count(*) from outlast.task t where t.parked = 'limit:' || k and t.state = 'pending'),
  array(select t.id::text from outlast.task t
    where t.state = 'running' and t.limits is not null and k = any(t.limits) order by t.started_at, t.seq)
from unnest($1::text[]) with ordinality keys(k, n) left join outlast.gauge g on g.key = k order by n

-- name: horizon
select outlast.horizon()

-- name: last_of_task
select max(seq) from outlast.log where task = $1

-- name: beyond
select exists (select 1 from outlast.log where seq > $1)

-- name: events
select x.*, p.pruned
from (select value::bigint as pruned from outlast.meta where name = 'pruned') p left join lateral (
  select e.seq, e.kind, e.at, e.data, e.task::text, e.attempt, t.type, t.queue,
    e.session_id, e.workflow_id
  from (
    (select * from outlast.event e where e.seq > p.pruned and %which order by e.seq limit %limit)
    union all
    (select * from outlast.birth e where e.seq > p.pruned and %which order by e.seq limit %limit)
  ) e left join lateral (select type, queue from outlast.task t where t.id = e.task limit 1) t on true
  order by e.seq limit %limit
) x on true order by x.seq

-- name: records
select kind, key, value, version, expires_at from outlast.record
where kind = $1 and ($2::text[] is null or key = any($2)) and (expires_at is null or expires_at > $3)
order by key

-- name: begin_log
select outlast.begin_log()

-- name: append
insert into outlast.event (at, task, attempt, kind, session_id, workflow_id, data)
select outlast.now_ms($1), t.id, coalesce(t.number, 0), $3, $4, $5, $6
from (select 1) one left join outlast.task t on t.id = $2
returning seq

-- name: lock_tasks
select 1 from outlast.task where id = any($1) order by id for no key update

-- name: steps
select key, value from outlast.step where task = $1 order by n

-- name: inbox
select name, data, at from outlast.signal where task = $1 order by n
