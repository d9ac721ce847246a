-- Statements of alter and of forgetting.

-- name: ask_to_stop
update task set cancel = ?, reason = ?, updated_at = ?, version = version + 1 where seq = ?

-- name: revive
update task set state = 'pending', parked = ?, wake_at = ?, awaits = ?, lane = 'retry', rank = ?,
  run_at = ?, attempt = 0, losses = 0, completed_at = null, reason = null, result = null,
  overdue = 0, overdue_at = iif(overdue_after_ms is null, null, ? + overdue_after_ms),
  expires_at = iif(max_age_ms is null, null, ? + max_age_ms), last_fence = null, updated_at = ?,
  version = version + 1
where seq = ?

-- name: restore
update task set state = 'pending', parked = 'deps', wake_at = null, awaits = ?, completed_at = null,
  reason = null, updated_at = ?, version = version + 1
where seq = ?

-- name: reschedule
update task set parked = ?, wake_at = ?, awaits = 0, rank = ?, run_at = ?, hold = null,
  overdue_at = iif(overdue_after_ms is null, null, ? + overdue_after_ms),
  expires_at = iif(max_age_ms is null, null, ? + max_age_ms), updated_at = ?, version = version + 1
where seq = ?

-- name: reprioritize
update task set priority = ?, updated_at = ?, version = version + 1 where seq = ?

-- name: edit
update body set payload = ? where seq = ?

-- name: edited
update task set updated_at = ?, version = version + 1 where seq = ?

-- name: drop_attrs
delete from label where seq = ? and name like 'attr.%'

-- name: add_signal
insert into signal (task, n, name, data, at)
values (?, (select ifnull(max(n), 0) + 1 from signal where task = ?), ?, ?, ?)

-- name: got_signal
update task set inbox = 1, updated_at = ?, version = version + 1 where seq = ?

-- name: drop_hold
update task set hold = null where seq = ?

-- name: dependents
select down, done from edge where up = ?

-- name: undo_edge
update edge set done = 0 where up = ? and down = ?

-- name: failed_upstreams
select count(*) from edge e join task t on t.seq = e.up
where e.down = ? and t.state in ('dead', 'cancelled') and e.up not in (?, ?)

-- name: redo_edges
update edge set done = up not in (?, ?) and (
  select state in ('completed', 'cancelled', 'dead') from task where seq = up
) where down = ?

-- name: mark_upstreams
update task set dependents = 1 where seq in (select up from edge where down = ? and done = 0)

-- name: open_edges
select count(*) from edge where down = ? and done = 0

-- name: forget_task
delete from task where seq = ?

-- name: forget_body
delete from body where seq = ?

-- name: forget_labels
delete from label where seq = ?

-- name: forget_up
delete from edge where up = ?

-- name: forget_down
delete from edge where down = ?

-- name: forget_unsettled
delete from unsettled where seq = ?

-- name: forget_signals
delete from signal where task = ?

-- name: forget_steps
delete from step where task = ?

-- name: forget_events
delete from event where task = ?

-- name: forget_keys
delete from reservation where key = ? and task_id = ?
