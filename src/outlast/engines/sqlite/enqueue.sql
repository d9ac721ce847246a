-- Statements of enqueue: tables task, body, label, edge, reservation, fair, line.

-- name: known
select t.id from task t where t.id in (select value from json_each(?))

-- name: add
insert into task (
  id, type, queue, lane, priority, rank, state, parked, wake_at, awaits, needs, hold, attempt, number,
  max_attempts, losses, max_losses, timeout_ms, overdue_after_ms, overdue_at, overdue, max_age_ms,
  expires_at, run_at, created_at, updated_at, limits, fair_key, session_id, user_id, parent_id,
  workflow_id, unique_key, tags, followed, streamed, dependents, steps, inbox, version
) values (
  ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, 0, 0,
  ?, 0, ?, ?, ?, ?, 0, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, 0, 0, 0, 0, 1
)

-- name: add_body
insert into body (seq, payload, meta) values (?, ?, ?)

-- name: add_label
insert or ignore into label (name, value, seq) values (?, ?, ?)

-- name: last_seq
select ifnull(max(seq), 0) from task

-- name: reserved
select task_id, until, digest from reservation where key = ?

-- name: reserve
insert or replace into reservation (key, task_id, until, digest) values (?, ?, ?, ?)

-- name: upstream
select seq, id, state from task where id in (select value from json_each(?))

-- name: add_edge
insert or ignore into edge (up, down, done) values (?, ?, ?)

-- name: mark_dependents
update task set dependents = 1 where seq = ?

-- name: line_there
select 1 from line where key = ? and queue = ? and lane = ?

-- name: fair_rank
select rank from fair where queue = ? and lane = ? and ifnull(key, char(0)) = ifnull(?, char(0))

-- name: fair_set
insert into fair (queue, lane, key, rank) values (?, ?, ?, ?)
on conflict (queue, lane, ifnull(key, char(0))) do update set rank = excluded.rank
