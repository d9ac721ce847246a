-- The log: entries, their cursors, and the records that have to wait for them.
--
--   log                  stream, see lib.lua; logs:session:<id>, logs:workflow:<id>, logs:task:<id>: lists of cursors
-- and the records of plain tasks that go on together.

local TOGETHER = 500  -- tasks that one entry tells of: 20 kB

-- A cursor is `ms-n` as an entry's id is, with seven more digits: 1, how many tasks the entry tells of, which of them.
-- That of the entry's first event, as its beginning and a number to count on from.
local function cursor_of(entry, n)
  return (entry:gsub('%-0$', '-')), 1000000 + n * 1000
end

-- The entry, how many tasks it tells of, which of them.
local function entry_of(cursor)
  local ms, place, size, k = cursor:match('^(%d+%-)(%d*)1(%d%d%d)(%d%d%d)$')
  return ms .. (place == '' and '0' or place), tonumber(size), tonumber(k)
end

-- One field: nine cost as much here and twice as much in the append-only file.
local function add_entry(n, text)
  topics['log'] = true
  return cursor_of(call('XADD', ns .. 'log', '*', n, text), n)
end

local function push_cursor(cursor, session_id, workflow_id)
  if session_id then table.insert(at(pushes, ns .. 'logs:session:' .. session_id), cursor) end
  if workflow_id then table.insert(at(pushes, ns .. 'logs:workflow:' .. workflow_id), cursor) end
end

-- A plain task goes on as many do, whose head, map, counts and event are `how`. Its record is their head, its own part,
-- their map, the cursor of its event, its tail. It is written when the event is, which tells of all that go on like it
-- one after the other: an entry for each would be a fifth of what a claim costs, or an end.
local function go_on(how, id, own, tail)
  if going ~= how or going_on == TOGETHER then close() end
  local n = going_on + 1
  going, going_on = how, n
  goers[n], owns[n], tails[n] = id, own, tail
end

function close()
  local how, n = going, going_on
  if n == 0 then return end
  going, going_on = nil, 0
  note(counts, how.is, n)
  if how.was then note(counts, how.was, -n) end
  local head, map, from, first, gap = how.head, how.map or '', '', 0, ''
  if how.told then
    local ids = concat(goers, '\30', 1, n)
    from, first = add_entry(n, how.told .. ids .. how.data)
    topics['task:' .. ids] = true
    gap = ' '
  end
  local w, task, leased = #written, ns .. 'task:', how.leased
  for i = 1, n do
    -- Of what is put together at once, nothing but the whole has to be allocated.
    local cursor = how.told and first + i - 1 or ''
    local raw = head .. owns[i] .. map .. from .. cursor .. gap .. tails[i]
    written[w + 1], written[w + 2], w = task .. goers[i], raw, w + 2
    if leased then packed[goers[i]] = raw end
  end
  for _, name in ipairs(how.told and {how.session_id and 'session:' .. how.session_id or false,
                                      how.workflow_id and 'workflow:' .. how.workflow_id or false} or NONE) do
    local list = name and at(pushes, ns .. 'logs:' .. name) or NONE
    for i = first, name and first + n - 1 or 0 do list[#list + 1] = from .. i end
  end
end

-- The text of an event before the ids of its tasks, and behind them.
local function event_front(kind, attempt)
  return kind .. '\31' .. int(now) .. '\31' .. attempt .. '\31'
end

local function event_tail(h, data)
  return '\31' .. h.type .. '\31' .. h.queue .. '\31' .. (h.session_id or '') .. '\31' .. (h.workflow_id or '') .. '\31'
    .. data
end

local function write_event(kind, data, t, session_id, workflow_id, moment, attempt)
  close()
  local from, first = add_entry(1, kind .. '\31' .. int(moment or now) .. '\31' .. int(attempt or (t and t.number or 0))
    .. '\31' .. (t and t.id or '') .. '\31' .. (t and t.type or '') .. '\31' .. (t and t.queue or '') .. '\31'
    .. (session_id or '') .. '\31' .. (workflow_id or '') .. '\31' .. data)
  local cursor = from .. first
  push_cursor(cursor, session_id, workflow_id)
  if not t then return cursor end
  topics['task:' .. t.id] = true
  if #t.log < INLINE_LOG then
    t.log = t.log .. cursor .. ' '
    touch(t)
  else
    table.insert(at(pushes, ns .. 'logs:task:' .. t.id), cursor)
  end
  return cursor
end

local function log(t, kind, data)
  return write_event(kind, data, t, t.session_id, t.workflow_id)
end
