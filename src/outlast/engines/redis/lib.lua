-- What every script begins with: engine time, tasks as they are and as they will be, the log.
--
-- KEYS[1] is the beginning of every key, "{namespace}:": one hash slot for all of them.
-- ARGV[1] is the skew in milliseconds, ARGV[2] the argument as MessagePack.
--
--   task:<id>            string: the record: its head (what tasks that came and started together have in common),
--                        \30, lengths and seq in fixed width, id, \31, payload and meta, MessagePack of a map
--                        (everything else), cursors of the log. See `decode`.
--   body:<id>            string: payload and meta of more than INLINE_BODY bytes: what is rewritten must not carry a
--                        megabyte along
--   tasks:pending:<lane>[:<queue>]   zset, score 0: ready, member = priority, rank, id in fixed width
--   tasks:scheduled      zset by wake_at: parked on time, or on a signal with a deadline
--   wait:<lane>:<n>:<queue>:<key>    zset like the ready ones: parked on a limit
--   held:<worker>, cancel:<worker>   zsets by seq and by id: what it runs, and what of it is to stop
--   over:completed, over:cancelled, dlq:tasks   zsets by completed_at: what is over
--   kept                 zset by when their unique key is free: what is over and must not be forgotten before
--   aging, overdue       zsets by the moment a pending task expires, a living one is overdue
--   status:<status>      zset by seq, for the statuses that are rare
--   metrics:tasks:by_state   hash: status, queue, lane, type -> how many; bytes:<state>: how many bytes
--   log                  stream: one field of kind, at, attempt, tasks, type, queue, session, workflow, data, whose
--                        name says how many tasks: what is told of many at once is one entry. See log.lua.
--   holes:<entry>        string: a bit for each task of an entry that has been forgotten
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
local OVER = {completed = ns .. 'over:completed', cancelled = ns .. 'over:cancelled', dead = ns .. 'dlq:tasks'}
local NONE = {}
-- Fields of the head that may be absent: false, not nil, so that `t.x = y` never goes to the map.
local IN_HEAD = {session_id = true, workflow_id = true, started_at = true, completed_at = true, fence = true,
                 worker = true, last_fence = true}
-- Fields of the map that say nothing about where a task stands or what its end has to do.
local INERT = {max_attempts = true, max_losses = true, needs = true, awaits = true, timeout_ms = true,
               user_id = true, parent_id = true, tags = true, attrs = true, edges = true}
-- What a map without them means. Records are made of it: never to be changed.
local DEFAULTS = {__index = {max_attempts = 4, max_losses = 3, needs = 'success', awaits = 0}}
local CHUNK = 1000  -- arguments that one unpack() may have; Lua's stack ends at 8,000
local INLINE_BODY = 400  -- bytes: a key of its own costs more than to write so many again, twice
local INLINE_LOG = 300  -- bytes of cursors of a task's first events in its record, about 14: most have no more
local find, sub, format, concat = string.find, string.sub, string.format, table.concat

local function in_chunks(list, fn)
  for i = 1, #list, CHUNK do
    fn(unpack(list, i, math.min(i + CHUNK - 1, #list)))
  end
end

-- A command that takes as many arguments as there are.
local function many(name, key, list)
  if #list > CHUNK then
    in_chunks(list, function(...) call(name, key, ...) end)
  elseif #list > 0 then
    call(name, key, unpack(list))
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
  if not digits[n] then digits[n] = format('%d', n) end
  return digits[n]
end

local quoted = {}  -- text -> JSON: the same worker and reason come again and again

-- Absent fields stay absent: in Lua 5.1 `t.x = nil` makes room for an x.
local function wipe(t, fields)
  for i = 1, #fields do
    if t[fields[i]] and IN_HEAD[fields[i]] then
      t[fields[i]] = false
    elseif t[fields[i]] then
      t[fields[i]] = nil
    end
  end
end

local function json(text)
  if not quoted[text] then quoted[text] = (cjson.encode(text):gsub('\\/', '/')) end
  return quoted[text]
end

-- records --------------------------------------------------------------------------------------------

-- Marks of a record whose text tells all that a step has to know: plain; but for dependents, which its end tells; but
-- for upstreams, whose ends it waits for. To decode the nodes of a graph and encode them again, at every step, was more
-- than half of what they cost: 60 us of 100.
local PLAIN, TELLS, WAITS = 'p', 'd', 'w'
local LAZY = {[PLAIN:byte()] = true, [TELLS:byte()] = true, [WAITS:byte()] = true}

local read_head

do  -- a script has at most 200 locals of its own

local heads = {}  -- text -> what it says: hundreds of tasks of a step share one
local HEAD = '^' .. ('([^\31]*)\31'):rep(21) .. '([^\31]*)$'

function read_head(text)
  local h = heads[text]
  if not h then
    local a = {text:match(HEAD)}
    for i = 7, 8 do a[i] = a[i] ~= '' and a[i] end
    for i = 18, 22 do a[i] = a[i] ~= '' and a[i] end
    local created_at, started_at, completed_at = tonumber(a[13]), a[18] and tonumber(a[18]), a[19] and tonumber(a[19])
    local run_at = tonumber(a[14]) or created_at
    h = {
      state = a[2], type = a[3], queue = a[4], lane = a[5], followed = a[6] == '1',
      session_id = a[7], workflow_id = a[8], attempt = tonumber(a[9]), number = tonumber(a[10]),
      losses = tonumber(a[11]), version = tonumber(a[12]), created_at = created_at, run_at = run_at,
      updated_at = tonumber(a[15]) or completed_at or started_at or created_at, rank = tonumber(a[16]) or run_at,
      priority = tonumber(a[17]), started_at = started_at, completed_at = completed_at, fence = a[20],
      worker = a[21], last_fence = a[22],
    }
    heads[text] = h
  end
  return h
end

end

-- A time that differs from `usual`, which is not written twice.
local function moment(at, usual)
  return at ~= usual and int(at) or ''
end

-- `mark`: one of the three above, 'e' where a second map follows the cursors, nothing for all others.
local function write_head(h, mark)
  return mark .. '\31' .. h.state .. '\31' .. h.type .. '\31' .. h.queue .. '\31' .. h.lane .. '\31'
    .. (h.followed and '1' or '0') .. '\31' .. (h.session_id or '') .. '\31' .. (h.workflow_id or '') .. '\31'
    .. h.attempt .. '\31' .. h.number .. '\31' .. h.losses .. '\31' .. h.version .. '\31' .. int(h.created_at)
    .. '\31' .. moment(h.run_at, h.created_at) .. '\31'
    .. moment(h.updated_at, h.completed_at or h.started_at or h.created_at) .. '\31' .. moment(h.rank, h.run_at) .. '\31'
    .. h.priority .. '\31'
    .. (h.started_at and int(h.started_at) or '') .. '\31' .. (h.completed_at and int(h.completed_at) or '') .. '\31'
    .. (h.fence or '') .. '\31' .. (h.worker or '') .. '\31' .. (h.last_fence or '')
end

-- A task as a table. What every task has stands in the table itself and is never nil; everything else is read from
-- and written to the map, through the metatable.
local function record(h, id, seq, cut, body, log, rest)
  setmetatable(rest, DEFAULTS)
  return setmetatable({
    id = id, seq = seq, cut = cut, body = body, log = log, rest = rest, type = h.type, queue = h.queue, lane = h.lane,
    state = h.state, followed = h.followed, session_id = h.session_id, workflow_id = h.workflow_id,
    attempt = h.attempt, number = h.number, losses = h.losses, version = h.version, created_at = h.created_at,
    run_at = h.run_at, updated_at = h.updated_at, rank = h.rank, priority = h.priority, started_at = h.started_at,
    completed_at = h.completed_at, fence = h.fence, worker = h.worker, last_fence = h.last_fence,
  }, {__index = rest, __newindex = rest})
end

-- Behind the head: \30, length of the map (8), seq (16), length of the payload (8), of the body (5; `apart`: it has a key
-- of its own), id, \31, body, map, cursors, and \30 and a second map (see end_plain).
local function decode(raw)
  local at = find(raw, '\30', 1, true)
  local size = tonumber(sub(raw, at + 33, at + 37))
  local id_end = find(raw, '\31', at + 38, true)
  local map = id_end + 1 + (size or 0)
  local log = map + tonumber(sub(raw, at + 1, at + 8))
  local rest, more = cmsgpack.unpack(sub(raw, map, log - 1)), find(raw, '\30', log, true)
  if more then
    local ended = cmsgpack.unpack(sub(raw, more + 1))
    rest.result, rest.attempts = ended.result, ended.attempts
  end
  return record(read_head(sub(raw, 1, at - 1)), sub(raw, at + 38, id_end - 1), tonumber(sub(raw, at + 9, at + 24)),
    tonumber(sub(raw, at + 25, at + 32)), size and sub(raw, id_end + 1, map - 1) or false,
    sub(raw, log, more and more - 1 or -1), rest)
end

-- Is there nothing else about the task that a claim or an end would have to look at? (They write the cursors of their
-- events behind those in the record, where later ones that have a list already would come before them.)
local function mark_of(t)
  if #t.log >= INLINE_LOG then return '' end
  local rest = t.rest
  for name, value in pairs(rest) do
    if not INERT[name] and name ~= 'downs' and not (name == 'parked' and value == 'deps') then return '' end
  end
  return rest.parked and WAITS or rest.downs and TELLS or PLAIN
end

local function pack_map(map)
  return next(map) and cmsgpack.pack(map) or '\128'  -- which takes an empty table for an array
end

local function encode(t)
  local rest = pack_map(t.rest)
  return write_head(t, mark_of(t)) .. format('\30%08d%016d%08d', #rest, t.seq, t.cut)
    .. (t.body and format('%05d', #t.body) or 'apart') .. t.id .. '\31' .. (t.body or '') .. rest .. t.log
end

local function body_of(t)
  return t.body or call('GET', ns .. 'body:' .. t.id) or ''
end

local function set_body(t, body)
  if #body > INLINE_BODY then
    call('SET', ns .. 'body:' .. t.id, body)
    t.body = false
  else
    if not t.body then call('UNLINK', ns .. 'body:' .. t.id) end
    t.body = body
  end
end

-- places ---------------------------------------------------------------------------------------------

local names = {}  -- queue -> lane -> the key of its ready set: the same for all that are claimed together

local function ready_key(queue, lane)
  local of = names[queue]
  if not of then
    of = {}
    names[queue] = of
  end
  if not of[lane] then of[lane] = ns .. 'tasks:pending:' .. lane .. (queue == 'default' and '' or ':' .. queue) end
  return of[lane]
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
    front = format('%05d%016d', t.priority, t.rank)
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
    p = {status, t.lane, false, ns .. 'held:' .. t.worker, int(t.seq), t.id}
    if t.cancel then p[7], p[8], p[9] = ns .. 'cancel:' .. t.worker, '0', t.id end
  elseif t.kept then
    p = {status, t.lane, false, ns .. 'kept', t.kept, t.id}
  elseif state ~= 'pending' then
    p = {status, t.lane, #(t.result or '') + t.cut, OVER[state], int(t.completed_at), t.id}
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

local PEOPLE = {'session_id', 'user_id', 'workflow_id', 'parent_id'}

local function sort_key(h)
  return ns .. 'by:sort:' .. h.queue .. '\31' .. h.type
end

-- What a task is found by: sorted sets by seq, written at its birth and when its attrs change.
local function index(t, fn)
  fn(sort_key(t))
  for i = 1, #PEOPLE do
    local value = t[PEOPLE[i]]
    if value then fn(ns .. 'by:' .. PEOPLE[i] .. ':' .. value) end
  end
  for _, tag in ipairs(t.tags or NONE) do fn(ns .. 'by:tag:' .. tag) end
  for _, attr in ipairs(t.attrs or NONE) do fn(ns .. 'by:attr.' .. attr[1] .. ':' .. attr[2]) end
end

-- tasks ----------------------------------------------------------------------------------------------

local tasks = {}    -- id -> the record as it will be; false: there is none
local places = {}   -- id -> as what it is counted and where it stands now
local dirty = {}    -- id -> true
local gone = {}     -- id -> true: to be deleted
local packed = {}   -- id -> the record as written
local topics = {}   -- set of what is to be published
local raws = {}     -- id -> the record of a task with one of the marks that nobody had to decode
-- What is to be written: sorted set -> scores and members, -> members; count -> by how much; keys and values.
local adds, drops, counts, written = {}, {}, {}, {}
local anew = {}     -- id -> true: of `raws`, those that `written` has otherwise than they are stored
local pushes = {}   -- list key -> cursors
-- Plain tasks that go on in the same way, until the entry of the log that tells of them is written: see `go_on`.
local going, going_on = nil, 0
local goers, owns, tails = {}, {}, {}
local close

local function write()
  close()
  for key, list in pairs(drops) do in_chunks(list, function(...) call('ZREM', key, ...) end) end
  for key, list in pairs(adds) do in_chunks(list, function(...) call('ZADD', key, ...) end) end
  in_chunks(written, function(...) call('MSET', ...) end)
  for name, by in pairs(counts) do
    if by ~= 0 and call('HINCRBY', ns .. 'metrics:tasks:by_state', name, by) == 0 then
      call('HDEL', ns .. 'metrics:tasks:by_state', name)
    end
  end
  adds, drops, counts, written, anew = {}, {}, {}, {}, {}
end

local function adopt(id, raw)
  local t = decode(raw)
  tasks[id], places[id], packed[id], raws[id] = t, places_of(t), raw, nil
end

-- `lazy`: those with a mark stay as they are, in `raws`.
local function load_all(ids, lazy)
  local missing = {}
  for _, id in ipairs(ids) do
    if tasks[id] == nil then
      if not raws[id] then
        missing[#missing + 1] = id
      elseif not lazy then
        if anew[id] then write() end  -- to where it stands now it must have come before it can leave
        adopt(id, raws[id])
      end
    end
  end
  if #missing == 0 then return end
  if #written > 0 or going then write() end  -- they may be among them
  for from = 1, #missing, CHUNK do
    local last = math.min(from + CHUNK - 1, #missing)
    local keys = {}
    for i = from, last do keys[#keys + 1] = ns .. 'task:' .. missing[i] end
    for i, raw in ipairs(call('MGET', unpack(keys))) do
      local id = missing[from + i - 1]
      if not raw then
        tasks[id] = false
      elseif lazy and LAZY[raw:byte()] then
        raws[id] = raw
      else
        adopt(id, raw)
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

local function drop(key, member)
  local list = at(drops, key)
  list[#list + 1] = member
end

local function add(key, score, member)
  local list = at(adds, key)
  local n = #list
  list[n + 1], list[n + 2] = score, member
end

local function stands(p, key, member)
  for i = 4, #p, 3 do
    if p[i] == key and p[i + 2] == member then return p[i + 1] end
  end
  return nil
end

-- From where a task stood to where it stands.
local function move(before, after)
  if #before == 6 and #after == 6 and before[4] ~= after[4] then  -- nearly always
    drop(before[4], before[6])
    add(after[4], after[5], after[6])
    return
  end
  for i = 4, #before, 3 do
    if not stands(after, before[i], before[i + 2]) then drop(before[i], before[i + 2]) end
  end
  for i = 4, #after, 3 do
    if stands(before, after[i], after[i + 2]) ~= after[i + 1] then add(after[i], after[i + 1], after[i + 2]) end
  end
end

local function tally_of(status, h)
  return status .. '\31' .. h.queue .. '\31' .. h.lane .. '\31' .. h.type
end

local function count(t, p, by)
  if not p[1] then return end
  note(counts, p[1] .. '\31' .. t.queue .. '\31' .. p[2] .. '\31' .. t.type, by)
  if p[3] then note(counts, 'bytes:' .. p[1], by * p[3]) end
end

-- Write what has changed so far: records, the sets they stand in, counts, indexes of the log.
local function flush()
  local deleted = {}
  for id in pairs(dirty) do
    local t, before, after = tasks[id], places[id] or NONE, NONE
    if gone[id] then
      deleted[#deleted + 1] = ns .. 'task:' .. id
      deleted[#deleted + 1] = ns .. 'body:' .. id
      tasks[id] = false
    else
      after = places_of(t)
      local raw, n = encode(t), #written
      packed[id] = raw
      written[n + 1], written[n + 2] = ns .. 'task:' .. id, raw
    end
    places[id] = after
    move(before, after)
    if before[1] ~= after[1] or before[2] ~= after[2] or before[3] ~= after[3] then
      count(t, before, -1)
      count(t, after, 1)
    end
  end
  dirty, gone = {}, {}
  write()
  in_chunks(deleted, function(...) call('UNLINK', ...) end)
  for key, cursors in pairs(pushes) do
    in_chunks(cursors, function(...) call('RPUSH', key, ...) end)
  end
  pushes = {}
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
