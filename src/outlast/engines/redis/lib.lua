-- What every script begins with: engine time, tasks as they are and as they will be, the log.
--
-- KEYS[1] is the beginning of every key, "{namespace}:": one hash slot for all of them.
-- ARGV[1] is the skew in milliseconds, ARGV[2] the argument as MessagePack.
--
--   task:<id>            string: the record, MessagePack of a map. (A hash of 20 fields cost 10 us to read
--                        and write where this costs 5, and 1,100 bytes where this takes 320.)
--   body:<id>            string: payload and meta, apart: what is rewritten must not carry a megabyte along
--   tasks:pending:<lane>[:<queue>]   zset, score 0: ready, member = priority, rank, id in fixed width
--   tasks:scheduled      zset by wake_at: parked on time, or on a signal with a deadline
--   wait:<lane>:<n>:<queue>:<key>    zset like the ready ones: parked on a limit
--   held:<worker>, cancel:<worker>   zsets by id: what it runs, and what of it is to stop
--   over:completed, over:cancelled, dlq:tasks   zsets by completed_at: what is over
--   kept                 zset by when their unique key is free: what is over and must not be forgotten before
--   aging, overdue       zsets by the moment a pending task expires, a living one is overdue
--   status:<status>      zset by seq, for the statuses that are rare
--   metrics:tasks:by_state   hash: status, queue, lane, type -> how many; bytes:<state>: how many bytes
--   log                  stream: one field of kind, at, attempt, task, type, queue, session, workflow, data
--   logs:session:<id>, logs:workflow:<id>, logs:task:<id>   lists of its entry ids (a stream takes 4 kB);
--                        of a task only those that its record has no room for
--   wake                 channel: the topics of a step, one to a line

local ns = KEYS[1]
local call = redis.call
local arg = cmsgpack.unpack(ARGV[2])
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[1])
local FINAL = {completed = true, cancelled = true, dead = true}
local RARE = {
  scheduled = true, retrying = true, throttled = true, blocked = true, cancelled = true, dead = true,
}
local OVER = {completed = 'over:completed', cancelled = 'over:cancelled', dead = 'dlq:tasks'}
local NONE = {}
local CHUNK = 1000  -- arguments that one unpack() may have; Lua's stack ends at 8,000

local function in_chunks(list, fn)
  for i = 1, #list, CHUNK do
    fn(unpack(list, i, math.min(i + CHUNK - 1, #list)))
  end
end

local function some(list)
  return #list > 0 and list or nil
end

-- A document that somebody wrote; one that is none says nothing. An error would leave half a step behind.
local function document(text)
  local fine, value = pcall(cjson.decode, text)
  return fine and type(value) == 'table' and value or NONE
end

local digits = {}  -- number -> text

local function int(n)
  if not digits[n] then digits[n] = string.format('%d', n) end
  return digits[n]
end

local quoted = {}  -- text -> JSON: the same worker and reason come again and again

-- Absent fields stay absent: in Lua 5.1 `t.x = nil` makes room for an x. (2 to 4 % of an exchange.)
local function wipe(t, names)
  for i = 1, #names do
    if t[names[i]] ~= nil then t[names[i]] = nil end
  end
end

local function json(text)
  if not quoted[text] then quoted[text] = (cjson.encode(text):gsub('\\/', '/')) end
  return quoted[text]
end

-- places ---------------------------------------------------------------------------------------------

local function ready_key(queue, lane)
  return ns .. 'tasks:pending:' .. lane .. (queue == 'default' and '' or ':' .. queue)
end

local function wait_key(key, queue, lane)
  return ns .. 'wait:' .. lane .. ':' .. #queue .. ':' .. queue .. ':' .. key
end

local fronts = {}  -- priority -> rank -> their fixed width: tasks that came together share it

local function member_of(t)
  local ranks = fronts[t.priority]
  if not ranks then
    ranks = {}
    fronts[t.priority] = ranks
  end
  local front = ranks[t.rank]
  if not front then
    front = string.format('%05d%016d', t.priority, t.rank)
    ranks[t.rank] = front
  end
  return front .. t.id
end

local function status_of(state, parked, lane)
  if state ~= 'pending' then return state end
  if not parked then return 'ready' end
  if parked == 'time' then return lane == 'retry' and 'retrying' or 'scheduled' end
  return parked:sub(1, 6) == 'limit:' and 'throttled' or 'blocked'
end

-- As what a task is counted, and every sorted set that it stands in, a function of its record:
-- {status, lane, size or false, key, score, member, key, score, member, …}. Scores are text where they can be
-- had for nothing: a number is printed anew for every command.
local function places_of(t)
  local state, status, p = t.state, status_of(t.state, t.parked, t.lane), nil
  if state == 'running' then
    p = {status, t.lane, false, ns .. 'held:' .. t.worker, '0', t.id}
    if t.cancel then p[7], p[8], p[9] = ns .. 'cancel:' .. t.worker, '0', t.id end
  elseif t.kept then
    p = {status, t.lane, false, ns .. 'kept', t.kept, t.id}
  elseif state ~= 'pending' then
    p = {status, t.lane, #(t.result or '') + t.cut, ns .. OVER[state], int(t.completed_at), t.id}
  elseif not t.parked then
    p = {status, t.lane, false, ready_key(t.queue, t.lane), '0', member_of(t)}
  elseif status == 'throttled' then
    p = {status, t.lane, false, wait_key(t.parked:sub(7), t.queue, t.lane), '0', member_of(t)}
  else
    p = {status, t.lane, false}
  end
  local n = #p
  if t.wake_at then p[n + 1], p[n + 2], p[n + 3], n = ns .. 'tasks:scheduled', t.wake_at, t.id, n + 3 end
  if t.expires_at and state == 'pending' then
    p[n + 1], p[n + 2], p[n + 3], n = ns .. 'aging', t.expires_at, t.id, n + 3
  end
  if t.overdue_at and not t.overdue and not FINAL[state] then
    p[n + 1], p[n + 2], p[n + 3], n = ns .. 'overdue', t.overdue_at, t.id, n + 3
  end
  if RARE[status] then p[n + 1], p[n + 2], p[n + 3] = ns .. 'status:' .. status, t.seq, t.id end
  return p
end

-- What a task is found by: sorted sets by seq, written at its birth and when its attrs change.
local function indexes_of(t)
  local found = {'all', 'by:type:' .. t.type, 'by:queue:' .. t.queue}
  for _, name in ipairs({'session_id', 'user_id', 'workflow_id', 'parent_id'}) do
    if t[name] then found[#found + 1] = 'by:' .. name .. ':' .. t[name] end
  end
  for _, tag in ipairs(t.tags or NONE) do found[#found + 1] = 'by:tag:' .. tag end
  for _, attr in ipairs(t.attrs or NONE) do
    found[#found + 1] = 'by:attr.' .. attr[1] .. ':' .. attr[2]
  end
  return found
end

-- tasks ----------------------------------------------------------------------------------------------

local tasks = {}    -- id -> the record as it will be; false: there is none
local places = {}   -- id -> as what it is counted and where it stands now
local dirty = {}    -- id -> true
local gone = {}     -- id -> true: to be deleted
local packed = {}   -- id -> the record as written
local topics = {}   -- set of what is to be published
local pushes = {}   -- list key -> cursors

local function load_all(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if tasks[id] == nil then
      tasks[id] = false
      missing[#missing + 1] = id
    end
  end
  for from = 1, #missing, CHUNK do
    local keys = {}
    for i = from, math.min(from + CHUNK - 1, #missing) do keys[#keys + 1] = ns .. 'task:' .. missing[i] end
    for _, raw in ipairs(call('MGET', unpack(keys))) do
      if raw then
        local t = cmsgpack.unpack(raw)
        tasks[t.id], places[t.id], packed[t.id] = t, places_of(t), raw
      end
    end
  end
end

local function load(id)
  if tasks[id] == nil then load_all({id}) end
  return tasks[id]
end

-- Those that there are, in order. (A member whose record is gone must not stop everybody else.)
local function load_list(ids)
  local found = {}
  load_all(ids)
  for _, id in ipairs(ids) do
    if tasks[id] then found[#found + 1] = tasks[id] end
  end
  return found
end

local function touch(t)
  dirty[t.id] = true
end

local function note(counts, name, by)
  counts[name] = (counts[name] or 0) + by
end

local function at(lists, key)
  if not lists[key] then lists[key] = {} end
  return lists[key]
end

local function stands(p, key, member)
  for i = 4, #p, 3 do
    if p[i] == key and p[i + 2] == member then return p[i + 1] end
  end
  return nil
end

-- From where a task stood to where it stands.
local function move(before, after, adds, drops)
  for i = 4, #before, 3 do
    if not stands(after, before[i], before[i + 2]) then
      local list = at(drops, before[i])
      list[#list + 1] = before[i + 2]
    end
  end
  for i = 4, #after, 3 do
    if stands(before, after[i], after[i + 2]) ~= after[i + 1] then
      local list = at(adds, after[i])
      local n = #list
      list[n + 1], list[n + 2] = after[i + 1], after[i + 2]
    end
  end
end

local function count(counts, t, p, by)
  if not p[1] then return end
  note(counts, p[1] .. '\31' .. t.queue .. '\31' .. p[2] .. '\31' .. t.type, by)
  if p[3] then note(counts, 'bytes:' .. p[1], by * p[3]) end
end

-- Write what has changed so far: records, the sets they stand in, counts, indexes of the log.
local function flush()
  local adds, drops, counts, written, deleted = {}, {}, {}, {}, {}
  for id in pairs(dirty) do
    local t, before, after = tasks[id], places[id] or NONE, NONE
    if gone[id] then
      deleted[#deleted + 1] = ns .. 'task:' .. id
      deleted[#deleted + 1] = ns .. 'body:' .. id
      tasks[id] = false
    else
      after = places_of(t)
      local raw, n = cmsgpack.pack(t), #written
      packed[id] = raw
      written[n + 1], written[n + 2] = ns .. 'task:' .. id, raw
    end
    places[id] = after
    move(before, after, adds, drops)
    if before[1] ~= after[1] or before[2] ~= after[2] or before[3] ~= after[3] then
      count(counts, t, before, -1)
      count(counts, t, after, 1)
    end
  end
  dirty, gone = {}, {}
  for key, list in pairs(drops) do in_chunks(list, function(...) call('ZREM', key, ...) end) end
  for key, list in pairs(adds) do in_chunks(list, function(...) call('ZADD', key, ...) end) end
  in_chunks(written, function(...) call('MSET', ...) end)
  in_chunks(deleted, function(...) call('UNLINK', ...) end)
  for name, by in pairs(counts) do
    if by ~= 0 and call('HINCRBY', ns .. 'metrics:tasks:by_state', name, by) == 0 then
      call('HDEL', ns .. 'metrics:tasks:by_state', name)
    end
  end
  for key, cursors in pairs(pushes) do
    in_chunks(cursors, function(...) call('RPUSH', key, ...) end)
  end
  pushes = {}
end

-- the log --------------------------------------------------------------------------------------------

local INLINE = 16  -- cursors of a task's first events stand in its record: most tasks never have more

local function write_event(kind, data, t, session_id, workflow_id, moment, attempt)
  -- One field: nine cost as much here and twice as much in the append-only file.
  local cursor = call('XADD', ns .. 'log', '*', 'e', kind .. '\31' .. int(moment or now) .. '\31'
    .. int(attempt or (t and t.number or 0)) .. '\31' .. (t and t.id or '') .. '\31' .. (t and t.type or '') .. '\31'
    .. (t and t.queue or '') .. '\31' .. (session_id or '') .. '\31' .. (workflow_id or '') .. '\31' .. data)
  topics['log'] = true
  if t then
    t.log = t.log or {}
    if #t.log < INLINE then
      t.log[#t.log + 1] = cursor
      touch(t)
    else
      table.insert(at(pushes, ns .. 'logs:task:' .. t.id), cursor)
    end
    topics['task:' .. t.id] = true
  end
  if session_id then table.insert(at(pushes, ns .. 'logs:session:' .. session_id), cursor) end
  if workflow_id then table.insert(at(pushes, ns .. 'logs:workflow:' .. workflow_id), cursor) end
  return cursor
end

local function log(t, kind, data)
  return write_event(kind, data, t, t.session_id, t.workflow_id)
end

-- workers --------------------------------------------------------------------------------------------
--   worker:<id>          string: info, seen_at, lease_until, evicted, tokens of its last turns
--   workers              zset by lease_until

local function read_worker(id)
  local raw = call('GET', ns .. 'worker:' .. id)
  return raw and cmsgpack.unpack(raw) or nil
end

local function drop_worker(id)
  call('UNLINK', ns .. 'worker:' .. id)
  call('ZREM', ns .. 'workers', id)
end

local function held_by(worker, last)
  return load_list(call('ZRANGE', ns .. 'held:' .. worker, 0, last))
end

-- The end of every step that writes.
local function publish()
  local list = {}
  for topic in pairs(topics) do list[#list + 1] = topic end
  if #list > 0 then call('PUBLISH', ns .. 'wake', table.concat(list, '\n')) end
end
