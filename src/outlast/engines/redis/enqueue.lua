-- enqueue: a batch of new tasks, whole or not at all. Reads and refusals first, then the writes.
--
--   call:<token>         string: the answer to a call, for CALL_MS
--   seq                  counter: the order in which tasks came
--   by:sort:<queue>\31<type>, by:session_id:<s>, by:user_id:<u>, by:workflow_id:<w>, by:parent_id:<p>,
--   by:tag:<t>, by:attr.<name>:<value>    zsets by seq: what tasks are found by
-- and the task itself (lib), its unique key and edges (ends), its rank and lines (gate).
--
-- New tasks come in a row, three items each: id, which of the sorts, the own part of the record behind `seq` (see
-- `decode`). A sort is what many have in common, {type, queue, lane, followed, priority, map of the rest}. Instead of the
-- part alone {part, body if that is apart or false, own}: a map of rest, session_id, workflow_id, run_at, delay_ms,
-- after, unique_for_ms, digest.

local CALL_MS = 60000

local function own_of(part)
  return type(part) == 'table' and part[3] or NONE
end

-- Is any of these tasks there? Nearly always none is, and that is known soonest in this way.
local function any_there(batches)
  local names, there = {}, 0
  for _, given in ipairs(batches) do
    for i = 1, #given, 3 do names[#names + 1] = ns .. 'task:' .. given[i] end
  end
  in_chunks(names, function(...) there = there + call('EXISTS', ...) end)
  return there > 0
end

-- The new ones among the tasks, {place, id, digest} of those that are there, and an upstream that does not exist.
-- `unknown`: none was there when the step began; what was born since is in `born`.
local function look(given, born, unknown)
  local new, met, keys = {}, {}, {}
  local ids, n = {}, 0
  for i = 1, #given, 3 do ids[#ids + 1] = given[i] end
  if not unknown then load_all(ids, true) end
  for i, id in ipairs(ids) do
    local part = given[3 * i]
    local own = own_of(part)
    local key = own.rest and own.rest.unique_key
    local holder = key and (keys[key] or reserved(key))
    if tasks[id] or raws[id] or born[id] then
      met[#met + 1] = {i - 1, id, false}
    elseif holder then
      met[#met + 1] = {i - 1, holder[1], holder[3]}
    else
      born[id] = true
      if key then keys[key] = {id, own.unique_for_ms and now + own.unique_for_ms, own.digest or false} end
      new[n + 1], new[n + 2], new[n + 3], n = id, given[3 * i - 1], part, n + 3
    end
  end
  for i = 3, n, 3 do
    local after = own_of(new[i]).after
    if after then
      load_all(after)
      for _, up in ipairs(after) do
        if not tasks[up] and not born[up] then return new, met, up end
      end
    end
  end
  return new, met, nil
end

local function head_of(sort, due, own)
  return {
    state = 'pending', type = sort[1], queue = sort[2], lane = sort[3], followed = sort[4], priority = sort[5],
    session_id = own.session_id or false, workflow_id = own.workflow_id or false, attempt = 0, number = 0, losses = 0,
    version = 1, created_at = now, run_at = due, updated_at = now, rank = due, started_at = false,
    completed_at = false, fence = false, worker = false, last_fence = false,
  }
end

-- A task with nothing of its own: ready at once, its record made of texts that all of its sort share.
local function bear_plain(sort, id, part, seq)
  local made, order = sort.made, format('%016d', seq)
  if not made then
    local h, map = head_of(sort, now, NONE), pack_map(sort[6])
    made = {
      head = write_head(h, 'p') .. format('\30%08d', #map), map = map, ready = ready_key(h.queue, h.lane),
      front = member_of({priority = h.priority, rank = now, id = ''}), is = tally_of('ready', h),
      sort = sort_key(h), told = h.followed and event_front('state', 0), data = event_tail(h, '{"status":"ready"}'),
    }
    sort.made = made
    topics['queue:' .. h.queue] = true
  end
  if tasks[id] == false then tasks[id] = nil end
  add(made.ready, '0', made.front .. id)
  add(made.sort, order, id)
  go_on(made, id, order .. part, '')
end

-- Where it stands is decided by the caller.
local function bear(sort, id, part, seq)
  local own, rest = part[3], {}
  local due = own.run_at or now + (own.delay_ms or 0)
  for _, fields in ipairs({sort[6], own.rest}) do
    for name, value in pairs(fields) do rest[name] = value end
  end
  local body = not part[2] and sub(part[1], find(part[1], '\31', 1, true) + 1)
  local t = record(head_of(sort, due, own), id, seq, tonumber(sub(part[1], 1, 8)), body, '', rest)
  if t.overdue_after_ms then t.overdue_at = due + t.overdue_after_ms end
  if t.max_age_ms then t.expires_at = due + t.max_age_ms end
  tasks[t.id] = t
  touch(t)
  index(t, function(name) add(name, int(seq), t.id) end)
  if t.unique_key then
    reserve(t.unique_key, t.id, own.unique_for_ms and now + own.unique_for_ms, own.digest)
  end
  topics['queue:' .. t.queue] = true
  return t
end

local function enqueue(sorts, new)
  if #new == 0 then return end
  local seq, waiting = call('INCRBY', ns .. 'seq', #new / 3) - #new / 3, {}
  for i = 1, #new, 3 do
    seq = seq + 1
    local id, sort, part = new[i], sorts[new[i + 1]], new[i + 2]
    local apart = type(part) == 'table' and part[2]
    if apart then
      local n = #written
      written[n + 1], written[n + 2] = ns .. 'body:' .. id, apart
    end
    if own_of(part) == NONE then
      bear_plain(sort, id, apart and part[1] or part, seq)
    else
      local t = bear(sort, id, part, seq)
      if part[3].after then
        t.parked = 'deps'
        waiting[#waiting + 1] = {t, part[3].after}
      else
        place(t, t.run_at)
        if t.followed then
          log(t, 'state', '{"status":"' .. status_of('pending', t.parked, t.lane) .. '"}')
        end
      end
    end
  end
  local failed, settled = {}, {}
  for _, one in ipairs(waiting) do
    local t, seen = one[1], {}
    t.edges = true
    for _, id in ipairs(one[2]) do
      local up = load(id)
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
  for _, one in ipairs(waiting) do
    local t = one[1]
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
-- upstream that does not exist, or {place, id, digest} of the tasks that were there. A call whose reply was lost is
-- made again with its token and gets the same answer: its own tasks are not `existing`.
local function enqueue_all()
  local answers, call_key = {}, ns .. 'call:' .. arg.token
  local answered = call('GET', call_key)
  if answered then return answered end
  local unknown, born = not any_there(arg.batches), {}
  for n, batch in ipairs(arg.batches) do
    local new, met, missing = look(batch, born, unknown)
    if missing then
      for i = 1, #new, 3 do born[new[i]] = nil end
    else
      enqueue(arg.sorts, new)
    end
    answers[n] = missing or met
  end
  answered = cmsgpack.pack(answers)
  call('SET', call_key, answered, 'PX', CALL_MS)
  return answered
end
