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
  local ups = {}  -- those that are not born with them
  for i = 3, n, 3 do
    for _, up in ipairs(own_of(new[i]).after or NONE) do
      if not born[up] then ups[#ups + 1] = up end
    end
  end
  load_all(ups, true)
  for _, up in ipairs(ups) do
    if not tasks[up] and not raws[up] then return new, met, up end
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

local node_edges, bear_node

do  -- a script has at most 200 locals of its own

-- What a node of a workflow may have of its own (a digest is for a unique key).
local NODE = {session_id = true, workflow_id = true, after = true, digest = true}

-- Has it nothing of its own but its workflow, its session, and upstreams that are not over? How many of these, and with
-- '0' for each: what it is to have of edges.
function node_edges(own, fresh)
  for name, value in pairs(own) do
    if not NODE[name] and not (name == 'delay_ms' and value == 0) then return nil end
  end
  local edges, seen = {}, {}
  for _, up in ipairs(own.after or NONE) do
    if not seen[up] then
      if not fresh[up] and not mark_up(up) then return nil end
      seen[up] = true
      edges[#edges + 1], edges[#edges + 2] = up, '0'
    end
  end
  return #edges / 2, edges
end

-- What nodes of a workflow have in common that wait for so many upstreams.
local function node_of(sort, own, awaits, tells)
  local name = concat({own.workflow_id or '', own.session_id or '', awaits, tells and TELLS or ''}, '\31')
  sort.nodes = sort.nodes or {}
  local made = sort.nodes[name]
  if made then return made end
  local h, rest, waits = head_of(sort, now, own), {}, awaits > 0
  for field, value in pairs(sort[6]) do rest[field] = value end
  if waits then rest.parked, rest.awaits, rest.edges = 'deps', awaits, true end
  if tells then rest.downs = true end
  local map, status = pack_map(rest), waits and 'blocked' or 'ready'
  made = {
    head = write_head(h, waits and WAITS or tells and TELLS or PLAIN) .. format('\30%08d', #map), map = map,
    ready = not waits and ready_key(h.queue, h.lane), front = member_of({priority = h.priority, rank = now, id = ''}),
    is = tally_of(status, h), told = h.followed and event_front('state', 0),
    data = event_tail(h, '{"status":"' .. status .. '"}'), session_id = h.session_id, workflow_id = h.workflow_id,
    indexes = {}, ids = {}, parts = {},
  }
  index({queue = h.queue, type = h.type, session_id = h.session_id, workflow_id = h.workflow_id},
    function(key) table.insert(made.indexes, key) end)
  topics['queue:' .. h.queue] = true
  sort.nodes[name] = made
  return made
end

-- bear() for a node: its record is written with those of all that are like it, which `nodes` keeps.
function bear_node(nodes, sort, own, awaits, tells, id, part, seq)
  local made = node_of(sort, own, awaits, tells)
  local order, n = format('%016d', seq), #made.ids
  if n == 0 then nodes[#nodes + 1] = made end
  if tasks[id] == false then tasks[id] = nil end
  if made.ready then add(made.ready, '0', made.front .. id) else add(ns .. 'status:blocked', order, id) end
  for _, key in ipairs(made.indexes) do add(key, order, id) end
  made.ids[n + 1], made.parts[n + 1] = id, order .. part
end

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
  local fresh, tells, downs, nodes = {}, {}, {}, {}
  for i = 3, #new, 3 do
    local after = own_of(new[i]).after
    if after then
      for _, up in ipairs(after) do tells[up] = true end
    end
  end
  if next(tells) then
    for i = 1, #new, 3 do fresh[new[i]] = true end
  end
  for i = 1, #new, 3 do
    seq = seq + 1
    local id, sort, part = new[i], sorts[new[i + 1]], new[i + 2]
    local apart = type(part) == 'table' and part[2]
    if apart then
      local n = #written
      written[n + 1], written[n + 2] = ns .. 'body:' .. id, apart
    end
    local own = own_of(part)
    local plainly, awaits, edges = own == NONE and not tells[id], nil, nil
    if not plainly then awaits, edges = node_edges(own, fresh) end
    if plainly then
      bear_plain(sort, id, apart and part[1] or part, seq)
    elseif awaits then
      bear_node(nodes, sort, own, awaits, tells[id], id, type(part) == 'table' and part[1] or part, seq)
      for k = 1, #edges, 2 do
        local of = at(downs, edges[k])
        of[#of + 1], of[#of + 2] = int(seq), id
      end
      many('HSET', ns .. 'up:' .. id, edges)
    else
      local t = bear(sort, id, part, seq)
      if tells[id] then t.downs = true end
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
  for _, made in ipairs(nodes) do
    for i, id in ipairs(made.ids) do go_on(made, id, made.parts[i], '') end
    made.ids, made.parts = {}, {}
  end
  for up, list in pairs(downs) do many('ZADD', ns .. 'down:' .. up, list) end
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
