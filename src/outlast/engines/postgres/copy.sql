-- Statements of dump and load. Places: kind and key, key, or the number of a task.

-- name: dump_record
select kind, key, value, version, expires_at from outlast.record
where (kind, key) > ($1::text, $2::text) order by kind, key limit $3

-- name: dump_gauge
select key, used, tat_us, paused_until, open_until, probe, buckets from outlast.gauge
where key > $1 order by key limit $2

-- name: dump_task
select t.seq, t.id::text, t.fair_key, t.hold, t.wake_at, t.overdue, r.until, r.digest,
  array(select name from outlast.label l where l.task = t.id and name like 'attr.%' order by name, value),
  array(select value from outlast.label l where l.task = t.id and name like 'attr.%' order by name, value),
  array(select key from outlast.step s where s.task = t.id order by n),
  array(select value from outlast.step s where s.task = t.id order by n),
  array(select at from outlast.step s where s.task = t.id order by n),
  array(select name from outlast.signal s where s.task = t.id order by n),
  array(select data from outlast.signal s where s.task = t.id order by n),
  array(select at from outlast.signal s where s.task = t.id order by n)
from outlast.task t left join outlast.reservation r on r.key = t.unique_key and r.task = t.id
where t.seq > $1 order by t.seq limit $2

-- name: dump_edge
select d.seq, e.up::text, e.down::text, e.done::integer
from outlast.edge e join outlast.task u on u.id = e.up join outlast.task d on d.id = e.down
where d.seq > $1 and d.seq <= (
  select coalesce(max(seq), 0) from (
    select x.seq from outlast.task x where x.seq > $1
      and exists (select 1 from outlast.edge y where y.down = x.id) order by x.seq limit $2
  ) some_downs
) order by d.seq, u.seq

-- name: begin_log
select outlast.begin_log()

-- name: load_record
insert into outlast.record (kind, key, value, version, expires_at) values ($1, $2, $3, $4, $5)
on conflict do nothing returning 1

-- name: load_definition
select outlast.limit_changed($1, $2, $3)

-- name: load_gauge
insert into outlast.gauge (key, tat_us, paused_until, open_until, buckets) values ($1, $2, $3, $4, $5)
on conflict do nothing returning 1

-- name: known_tasks
select id::text from outlast.task where id = any($1::uuid[])

-- name: load_task
insert into outlast.task (
  id, type, queue, lane, priority, rank, state, parked, wake_at, awaits, needs, hold, attempt, number,
  max_attempts, losses, max_losses, timeout_ms, overdue_after_ms, overdue_at, overdue, max_age_ms,
  expires_at, run_at, created_at, started_at, updated_at, completed_at, limits, units, fair_key,
  session_id, user_id, parent_id, workflow_id, unique_key, tags, followed, steps, inbox, version,
  reason, fingerprint, progress, attempts, error, result, payload, meta
)
select $1, $2, $3, $4, $5, case when $48 then outlast.rank_of($3, $4, $30, $23) else $23 end,
  $6, $7, $8, $9, $10, $11, $12, $13,
  $14, $15, $16, $17, $18, $19, $20, $21,
  $22, $23, $24, $25, $26, $27, $28, $29, $30,
  $31, $32, $33, $34, $35, $36, $37, $38, $39, $40,
  $41, $42, $43, $44, $45, $46, $47, $49
where not exists (select 1 from outlast.task where id = $1)
on conflict do nothing returning 1

-- name: add_label
insert into outlast.label (name, value, task) values ($1, $2, $3) on conflict do nothing

-- name: load_step
insert into outlast.step (task, key, value, at, n) values ($1, $2, $3, $4, $5) on conflict do nothing

-- name: load_signal
insert into outlast.signal (task, n, name, data, at) values ($1, $2, $3, $4, $5) on conflict do nothing

-- name: load_reservation
insert into outlast.reservation (key, task, until, digest) values ($1, $2, $3, $4)
on conflict (key) do update set task = excluded.task, until = excluded.until, digest = excluded.digest

-- name: load_line
insert into outlast.line (key, queue, lane, open_at) values ($1, $2, $3, $4) on conflict do nothing

-- name: load_edges
insert into outlast.edge (up, down, done)
select up, down, done from unnest($1::uuid[], $2::uuid[], $3::boolean[]) as e(up, down, done)
where exists (select 1 from outlast.task where id = e.up)
  and exists (select 1 from outlast.task where id = e.down)
on conflict do nothing returning up, done

-- name: mark_dependents
update outlast.task set dependents = true where id = $1

-- name: mark_unsettled
insert into outlast.unsettled
select id from outlast.task where id = any($1::uuid[]) and state not in ('pending', 'running')
on conflict do nothing

-- name: loaded_events
select value from outlast.meta where name = 'loaded_events' for update

-- name: set_loaded_events
insert into outlast.meta (name, value) values ('loaded_events', $1)
on conflict (name) do update set value = excluded.value

-- name: load_event
insert into outlast.event (at, task, attempt, kind, session_id, workflow_id, data)
values ($1, (select id from outlast.task where id = $2), $3, $4, $5, $6, $7)
