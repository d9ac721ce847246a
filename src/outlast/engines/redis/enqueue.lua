-- enqueue: a batch of new tasks, whole or not at all. Reads and refusals first, then the writes.
--
--   seq                  counter: the order in which tasks came
--   all, by:type:<t>, by:queue:<q>, by:session_id:<s>, by:user_id:<u>, by:workflow_id:<w>, by:parent_id:<p>,
--   by:tag:<t>, by:attr.<name>:<value>    zsets by seq: what tasks are found by
-- and the task itself (lib), its unique key and edges (ends), its rank and lines (gate).

-- The new ones among the tasks, the receipts {id, existing, digest}, and an upstream that does not exist.
local function look(given, born)
  local new, receipts, keys = {}, {}, {}
  local ids = {}
  for i, task in ipairs(given) do ids[i] = task.id end
  load_all(ids)
  for i, task in ipairs(given) do
    local key = task.unique_key
    local holder = key and (keys[key] or reserved(key))
    if tasks[task.id] or born[task.id] then
      receipts[i] = {task.id, true}
    elseif holder then
      receipts[i] = {holder[1], true, holder[3]}
    else
      born[task.id] = true
      if key then keys[key] = {task.id, task.unique_for_ms and now + task.unique_for_ms, task.digest or false} end
      new[#new + 1] = task
      receipts[i] = {task.id, false, task.digest}
    end
  end
  for _, task in ipairs(new) do
    load_all(task.after or NONE)
    for _, up in ipairs(task.after or NONE) do
      if not tasks[up] and not born[up] then return new, receipts, up end
    end
  end
  return new, receipts, nil
end

-- The record of a new task; where it stands is decided by the caller.
local function born_as(task, seq)
  local due = task.run_at or now + task.delay_ms
  return {
    id = task.id, seq = seq, type = task.type, queue = task.queue, lane = task.lane,
    priority = task.priority, rank = due, state = 'pending', awaits = 0, needs = task.needs, hold = task.hold,
    attempt = 0, number = 0, max_attempts = task.max_attempts, losses = 0, max_losses = task.max_losses,
    timeout_ms = task.timeout_ms, overdue_after_ms = task.overdue_after_ms,
    overdue_at = task.overdue_after_ms and due + task.overdue_after_ms, max_age_ms = task.max_age_ms,
    expires_at = task.max_age_ms and due + task.max_age_ms, run_at = due, created_at = now, updated_at = now,
    limits = task.limits, fair_key = task.fair_key, session_id = task.session_id,
    user_id = task.user_id, parent_id = task.parent_id, workflow_id = task.workflow_id,
    unique_key = task.unique_key, tags = task.tags, attrs = task.attrs, followed = task.followed,
    version = 1, cut = #task.payload,
  }
end

local function enqueue(new)
  if #new == 0 then return end
  local seq = call('INCRBY', ns .. 'seq', #new) - #new
  local bodies, indexes, waiting = {}, {}, {}
  for i, task in ipairs(new) do
    local t = born_as(task, seq + i)
    tasks[t.id] = t
    touch(t)
    bodies[#bodies + 1] = ns .. 'body:' .. t.id
    bodies[#bodies + 1] = task.payload .. task.meta
    for _, name in ipairs(indexes_of(t)) do
      local list = at(indexes, ns .. name)
      list[#list + 1] = t.seq
      list[#list + 1] = t.id
    end
    if t.unique_key then
      reserve(t.unique_key, t.id, task.unique_for_ms and now + task.unique_for_ms, task.digest)
    end
    if task.after then
      t.parked = 'deps'
      waiting[#waiting + 1] = task
    else
      place(t, t.run_at)
      if t.followed then
        log(t, 'state', '{"status":"' .. status_of('pending', t.parked, t.lane) .. '"}')
      end
    end
    topics['queue:' .. t.queue] = true
  end
  in_chunks(bodies, function(...) call('MSET', ...) end)
  for key, list in pairs(indexes) do in_chunks(list, function(...) call('ZADD', key, ...) end) end
  local failed, settled = {}, {}
  for _, task in ipairs(waiting) do
    local t, seen = tasks[task.id], {}
    t.edges = true
    for _, id in ipairs(task.after) do
      local up = tasks[id]
      if not seen[id] then
        seen[id] = true
        set_edge(id, t, FINAL[up.state])
        if not FINAL[up.state] then
          t.awaits = t.awaits + 1
        elseif up.state ~= 'completed' and t.needs == 'success' then
          failed[t.id] = true
        end
      end
    end
    settled[t.id] = t.awaits == 0
    if t.followed then log(t, 'state', '{"status":"blocked"}') end
  end
  -- One at a time: cancelling one may have cancelled the next.
  for _, task in ipairs(waiting) do
    local t = tasks[task.id]
    if t.state == 'pending' then
      if failed[t.id] then
        finish(t, 'cancelled', {reason = 'upstream'})
      elseif settled[t.id] then
        unpark(t)
      end
    end
  end
end

-- Several batches that travel together, each whole or not at all. Answers what the caller cannot know: an
-- upstream that does not exist, or {place, id, digest} of the tasks that were there.
local function enqueue_all()
  local answers = {}
  for n, batch in ipairs(arg) do
    local new, receipts, missing = look(batch, {})
    local met = {}
    if not missing then
      enqueue(new)
      for i, receipt in ipairs(receipts) do
        if receipt[2] then met[#met + 1] = {i - 1, receipt[1], receipt[3] or false} end
      end
    end
    answers[n] = missing or met
  end
  return cmsgpack.pack(answers)
end
