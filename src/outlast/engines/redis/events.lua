#!lua flags=no-writes
-- events: what comes after a cursor, from the whole log or from one of its indexes, in one look.
--
--   log                  stream; logs:task:<id>, logs:session:<id>, logs:workflow:<id>: lists of its entry ids
--   task:<id>            the record, whose `log` has the ids of a task's first events
--   meta                 hash: pruned, the last entry that was pruned
--
-- KEYS[1] the namespace, ARGV: after ("ms-n"), index ("" or "task:<id>", …), limit.
-- Answers {last entry of the log or "0-0", pruned or "0-0", how many were looked at, entries}.

local ns, call = KEYS[1], redis.call
local after, index, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function parts(cursor)
  local ms, n = cursor:match('^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

local function later(a, b)
  local a_ms, a_n = parts(a)
  local b_ms, b_n = parts(b)
  return a_ms > b_ms or (a_ms == b_ms and a_n > b_n)
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

local newest = call('XREVRANGE', ns .. 'log', '+', '-', 'COUNT', 1)
local last = newest[1] and newest[1][1] or '0-0'
local pruned = call('HGET', ns .. 'meta', 'pruned') or '0-0'
if later(pruned, after) then after = pruned end
if index == '' then
  local found = call('XRANGE', ns .. 'log', '(' .. after, '+', 'COUNT', limit)
  return {last, pruned, #found, found}
end
local cursors = {}
local id = index:match('^task:(.*)$')
local raw = id and call('GET', ns .. 'task:' .. id)
for cursor in (raw and raw:match('^[^\30]*\30[^\31]*\31%d+\31%d+\31([^\30]*)') or ''):gmatch('%S+') do
  if #cursors < limit and later(cursor, after) then cursors[#cursors + 1] = cursor end
end
if #cursors < limit then
  local list = ns .. 'logs:' .. index
  local from = first_later(list)
  for _, cursor in ipairs(call('LRANGE', list, from, from + limit - #cursors - 1)) do
    cursors[#cursors + 1] = cursor
  end
end
local entries = {}
for _, cursor in ipairs(cursors) do
  local found = call('XRANGE', ns .. 'log', cursor, cursor)
  if found[1] then entries[#entries + 1] = found[1] end
end
return {last, pruned, #cursors, entries}
