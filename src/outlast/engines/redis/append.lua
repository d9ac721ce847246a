-- append: facts that no attempt tells. Keys: log, logs:task:<id>, logs:session:<id>, logs:workflow:<id>.

local function append()
  local cursors = {}
  for i, event in ipairs(arg) do
    local t = event.task_id and load(event.task_id) or nil
    cursors[i] = write_event(event.kind, event.data, t, event.session_id, event.workflow_id)
    if event.task_id then topics['task:' .. event.task_id] = true end
  end
  return cursors
end
