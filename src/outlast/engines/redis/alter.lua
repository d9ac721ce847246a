-- alter: what people and programs do to a task from outside. One answer per id, in order.
--
--   inbox:<id>           list of {name, data, at}: a signal is pushed here
--   body:<id>            an edited payload, if it is long
--   holes:<entry>        which of an entry's tasks have been forgotten
--   up:, down:, told:<id>, unsettled   edges, undone and redone by a redrive
-- and, when a task is forgotten, every key that speaks of it.

local EVERYTHING = 2 ^ 50

local function edit(t, payload, attrs)
  set_body(t, payload .. body_of(t):sub(t.cut + 1))
  t.cut = #payload
  if attrs then
    for _, attr in ipairs(t.attrs or NONE) do
      call('ZREM', ns .. 'by:attr.' .. attr[1] .. ':' .. attr[2], t.id)
    end
    t.attrs = some(attrs)
    for _, attr in ipairs(attrs) do
      call('ZADD', ns .. 'by:attr.' .. attr[1] .. ':' .. attr[2], t.seq, t.id)
    end
  end
  t.updated_at, t.version = now, t.version + 1
  touch(t)
end

local function due_from(t, run_at)
  t.run_at = run_at
  t.overdue_at = t.overdue_after_ms and run_at + t.overdue_after_ms or nil
  t.expires_at = t.max_age_ms and run_at + t.max_age_ms or nil
  t.updated_at, t.version = now, t.version + 1
  touch(t)
end

local function reschedule(t, run_at)
  if t.state ~= 'pending' or (t.parked and t.parked ~= 'time') then return 'state' end
  t.hold = nil
  place(t, run_at)
  due_from(t, run_at)
  if t.followed then
    log(t, 'state', string.format('{"status":"%s","run_at":%d}', status_of('pending', t.parked, t.lane), run_at))
  end
end

-- Is its unique key the task's again? Not when another has taken it meanwhile.
local function retakes_key(t)
  if not t.unique_key then return true end
  local holder = reserved(t.unique_key)
  if not holder then reserve(t.unique_key, t.id) end
  return not holder or holder[1] == t.id
end

-- May the dependent live again? Not while another of its upstreams is dead or cancelled, and not when its
-- unique key has been taken meanwhile.
local function restored(down, first, up)
  if down.reason ~= 'upstream' then return false end
  local ups = call('HKEYS', ns .. 'up:' .. down.id)
  load_all(ups)
  for _, id in ipairs(ups) do
    local other = tasks[id]
    if id ~= first and id ~= up and other and (other.state == 'dead' or other.state == 'cancelled') then
      return false
    end
  end
  if not retakes_key(down) then return false end
  local awaits = 0
  for _, id in ipairs(ups) do
    local done = id ~= first and id ~= up and tasks[id] and FINAL[tasks[id].state]
    set_edge(id, down, done)
    if not done then awaits = awaits + 1 end
  end
  down.state, down.parked, down.wake_at, down.awaits = 'pending', 'deps', nil, awaits
  wipe(down, ENDED)
  down.completed_at, down.updated_at, down.version = false, now, down.version + 1
  touch(down)
  log(down, 'state', '{"status":"blocked","redriven":true}')
  return true
end

-- Those that its end had cancelled wait for it again; those that still wait, wait for it too. One
-- may have fallen before this upstream has told it.
local function restore_dependents(t)
  local again_from = {t.id}
  while #again_from > 0 do
    local up = table.remove(again_from)
    call('SREM', ns .. 'unsettled', up)
    local untold = load_list(call('ZRANGE', ns .. 'down:' .. up, 0, -1))
    for _, down in ipairs(load_list(call('ZRANGE', ns .. 'told:' .. up, 0, -1))) do
      if down.state == 'pending' and down.parked == 'deps' then
        set_edge(up, down, false)
        down.awaits = down.awaits + 1
        touch(down)
      else
        untold[#untold + 1] = down
      end
    end
    for _, down in ipairs(untold) do
      if down.state == 'cancelled' and restored(down, t.id, up) then
        again_from[#again_from + 1] = down.id
      end
    end
  end
end

-- Pending again, in the retry lane, with fresh budgets; the history stays.
local function revive(t, run_at)
  local open = open_edges(t.id)
  wipe(t, ENDED)
  wipe(t, {'completed_at', 'overdue', 'last_fence'})
  t.state, t.lane, t.attempt, t.losses = 'pending', 'retry', 0, 0
  if open > 0 then
    t.parked, t.wake_at, t.awaits, t.rank = 'deps', nil, open, run_at
  else
    place(t, run_at)
  end
  due_from(t, run_at)
  log(t, 'state', '{"status":"' .. status_of('pending', t.parked, 'retry') .. '","redriven":true}')
end

-- A task and all that belongs to it; who waits for it is told first.
local function forget(t)
  local id = t.id
  if not FINAL[t.state] then finish(t, 'cancelled', {reason = 'forgotten'}) end
  settle({{id, t.state == 'completed'}}, EVERYTHING)
  flush()
  for _, up in ipairs(call('HKEYS', ns .. 'up:' .. id)) do
    call('ZREM', ns .. 'down:' .. up, id)
    call('ZREM', ns .. 'told:' .. up, id)
  end
  for _, down in ipairs(call('ZRANGE', ns .. 'told:' .. id, 0, -1)) do
    call('HDEL', ns .. 'up:' .. down, id)
  end
  local cursors = call('LRANGE', ns .. 'logs:task:' .. id, 0, -1)
  for cursor in t.log:gmatch('%S+') do cursors[#cursors + 1] = cursor end
  for _, cursor in ipairs(cursors) do
    local entry, size, k = entry_of(cursor)
    local holes = ns .. 'holes:' .. entry
    if size > 1 then call('SETBIT', holes, k, 1) end
    if size == 1 or call('BITCOUNT', holes) == size then  -- there is nobody left of whom it tells
      call('XDEL', ns .. 'log', entry)
      call('UNLINK', holes)
    end
    if t.session_id then call('LREM', ns .. 'logs:session:' .. t.session_id, 1, cursor) end
    if t.workflow_id then call('LREM', ns .. 'logs:workflow:' .. t.workflow_id, 1, cursor) end
  end
  index(t, function(name) call('ZREM', name, id) end)
  call('SREM', ns .. 'unsettled', id)
  call('UNLINK', ns .. 'up:' .. id, ns .. 'told:' .. id, ns .. 'logs:task:' .. id, ns .. 'inbox:' .. id,
    ns .. 'step:' .. id)
  release_key(t, true)
  dirty[id], gone[id] = true, true
  topics['task:' .. id] = true
  flush()
end

-- Each change applies, or says why not.
local CHANGES = {}

function CHANGES.Cancel(t, change)
  if FINAL[t.state] then return 'state' end
  if t.state == 'running' then
    t.cancel, t.reason, t.updated_at, t.version = change.reason, change.reason, now, t.version + 1
    topics['worker:' .. t.worker] = true
    touch(t)
  else
    finish(t, 'cancelled', {reason = change.reason})
  end
end

function CHANGES.Redrive(t, change)
  if t.state == 'pending' and t.parked == 'time' and t.lane == 'retry' then
    if change.payload then edit(t, change.payload, change.attrs) end
    return reschedule(t, now + change.delay_ms)
  end
  if t.state ~= 'dead' and t.state ~= 'cancelled' then return 'state' end
  if not retakes_key(t) then return 'unique' end
  if change.payload then edit(t, change.payload, change.attrs) end
  revive(t, now + change.delay_ms)
  restore_dependents(t)
end

function CHANGES.Reschedule(t, change)
  return reschedule(t, change.run_at or now + change.delay_ms)
end

function CHANGES.Reprioritize(t, change)
  if t.state ~= 'pending' then return 'state' end
  t.priority, t.updated_at, t.version = change.priority, now, t.version + 1
  touch(t)
end

function CHANGES.EditPayload(t, change)
  if t.state == 'running' or t.state == 'completed' then return 'state' end
  edit(t, change.payload, change.attrs)
end

function CHANGES.Resolve(t, change)
  if t.state ~= 'pending' and t.state ~= 'dead' then return 'state' end
  if t.state == 'dead' then restore_dependents(t) end
  finish(t, 'completed', {reason = change.reason, result = change.result})
end

function CHANGES.Signal(t, change)
  if FINAL[t.state] then return 'state' end
  call('RPUSH', ns .. 'inbox:' .. t.id, cmsgpack.pack({change.name, change.data, now}))
  t.inbox = t.inbox or {}
  note(t.inbox, change.name, 1)
  t.updated_at, t.version = now, t.version + 1
  touch(t)
  log(t, 'signal', '{"name":' .. json(change.name) .. '}')
  if t.state == 'pending' and t.parked == 'signal:' .. change.name and t.inbox[change.name] >= t.awaits then
    if not t.hold then t.run_at = now end  -- it waited in the middle of its work: go on at once
    t.hold = nil
    unpark(t)
  end
end

function CHANGES.Forget(t)
  if t.state == 'running' then return 'state' end
  forget(t)
end

-- {why or '', the state it met or ''} of each.
local function alter()
  local answers = {}
  for _, id in ipairs(arg.ids) do
    local t = load(id)
    if t then
      local met = t.state
      answers[#answers + 1] = {CHANGES[arg.change.type](t, arg.change) or '', met}
    else
      answers[#answers + 1] = {'not_found', ''}
    end
  end
  return answers
end
