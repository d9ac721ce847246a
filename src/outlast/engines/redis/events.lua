#!lua flags=no-writes
-- events: what comes after a cursor, from the whole log or from one of its indexes, in one look.
--
--   log                  stream; logs:task:<id>, logs:session:<id>, logs:workflow:<id>: lists of cursors
--   holes:<entry>        string: a bit for each task of an entry that has been forgotten
--   task:<id>            the record, at whose end are the cursors of a task's first events
--   meta                 hash: pruned, the cursor of the last event that was pruned
--
-- KEYS[1] the namespace, ARGV: after (a cursor), index ("" or "task:<id>", …), limit.
-- Answers {cursor of the last event or "0-0", pruned or "0-0", how many were looked at, cursor of the last of these,
-- entries}, an entry as {cursor of its first event, text, holes}: it may tell of several tasks, those before `after`
-- included, and of those that were forgotten nothing is left but the holes.

local ns, call = KEYS[1], redis.call
local after, index, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local AT_ONCE = 50  -- entries; each may have 20 kB

-- Cursors as log.lua makes them of an entry's id: `place` of `size` events.
local function cursor_of(entry, size, place)
  return entry:gsub('%-0$', '-') .. 1000000 + size * 1000 + place
end

-- The entry, its size, and the place in it; "0-0" is before everything.
local function entry_of(cursor)
  local ms, n, size, place = cursor:match('^(%d+%-)(%d*)1(%d%d%d)(%d%d%d)$')
  if not ms then return cursor, 1, 0 end
  return ms .. (n == '' and '0' or n), tonumber(size), tonumber(place)
end

local function later(a, b)
  local a_ms, a_n = a:match('^(%d+)-(%d+)$')
  local b_ms, b_n = b:match('^(%d+)-(%d+)$')
  a_ms, b_ms = tonumber(a_ms), tonumber(b_ms)
  return a_ms > b_ms or (a_ms == b_ms and tonumber(a_n) > tonumber(b_n))
end

-- The place of the first cursor of a list that is later than `after`: by halving.
local function first_later(list)
  local low, high = 0, call('LLEN', list)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if later(call('LINDEX', list, middle), after) then high = middle else low = middle + 1 end
  end
  return low
end

-- Entries until `limit` events have been looked at, and how many that were.
local function read_log()
  local found, looked, upto = {}, 0, after
  local entry, size, place = entry_of(after)
  local from, at_once = (place == size - 1 and '(' or '') .. entry, 10
  while looked < limit do
    local some = call('XRANGE', ns .. 'log', from, '+', 'COUNT', at_once)
    for _, each in ipairs(some) do
      local n = tonumber(each[2][1])
      looked, upto = looked + n, cursor_of(each[1], n, n - 1)
      found[#found + 1] = {cursor_of(each[1], n, 0), each[2][2], n > 1 and call('GET', ns .. 'holes:' .. each[1]) or ''}
      if looked >= limit then break end
    end
    if #some < at_once then break end
    from = '(' .. some[#some][1]
    at_once = math.min(AT_ONCE, math.ceil(math.max(limit - looked, 1) * #found / looked))
  end
  return found, looked, upto
end

-- The cursors of a record, behind its map: `decode` of lib.lua.
local function cursors_in(raw)
  local at = raw:find('\30', 1, true)
  local size = tonumber(raw:sub(at + 33, at + 37)) or 0
  local map = raw:find('\31', at + 38, true) + 1 + size
  return raw:match('^[^\30]*', map + tonumber(raw:sub(at + 1, at + 8)))
end

local newest = call('XREVRANGE', ns .. 'log', '+', '-', 'COUNT', 1)[1]
local last = '0-0'
if newest then
  local size = tonumber(newest[2][1])
  last = cursor_of(newest[1], size, size - 1)
end
local pruned = call('HGET', ns .. 'meta', 'pruned') or '0-0'
if later(pruned, after) then after = pruned end
if index == '' then
  local found, looked, upto = read_log()
  return {last, pruned, looked, upto, found}
end
local cursors = {}
local id = index:match('^task:(.*)$')
local raw = id and call('GET', ns .. 'task:' .. id)
for cursor in (raw and cursors_in(raw) or ''):gmatch('%S+') do
  if #cursors < limit and later(cursor, after) then cursors[#cursors + 1] = cursor end
end
if #cursors < limit then
  local list = ns .. 'logs:' .. index
  local from = first_later(list)
  for _, cursor in ipairs(call('LRANGE', list, from, from + limit - #cursors - 1)) do
    cursors[#cursors + 1] = cursor
  end
end
local entries, read = {}, nil  -- neighbours are often of one entry
for _, cursor in ipairs(cursors) do
  local entry, _, place = entry_of(cursor)
  if not read or read.entry ~= entry then
    local found = call('XRANGE', ns .. 'log', entry, entry)[1]
    read = {entry = entry, ids = {}}
    if found then
      local ids
      read.front, ids, read.tail = found[2][2]:match('^([^\31]*\31[^\31]*\31[^\31]*\31)([^\31]*)(.*)$')
      for each in (ids .. '\30'):gmatch('([^\30]*)\30') do read.ids[#read.ids + 1] = each end
    end
  end
  local who = read.ids[place + 1]
  if who then entries[#entries + 1] = {cursor, read.front .. who .. read.tail, ''} end
end
return {last, pruned, #cursors, cursors[#cursors] or after, entries}
