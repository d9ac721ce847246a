-- exchange: a worker's turn. Apply its outcomes, renew its lease, unpark what is due, claim.
--
--   worker:<id>, workers its lease is renewed
--   step:<id>            hash: key -> {n, value, at}: the remembered parts of a handler
--   inbox:<id>           list of {name, data, at}: the signals that came (how many of a name is in the record)
--   rec:queue            hash: records of kind queue, read for `paused`
-- and tasks (lib), their ends, limits and lines (gate), children (enqueue).

local DUE_BUDGET = 500      -- parked tasks that one exchange makes ready
local PARK_BUDGET = 256     -- candidates beyond its room that it parks on limits before it says `again`
local OPEN_LINES = 64
local REMEMBERED_TURNS = 8
local PRESSURE_CEILING = 10000

-- outcomes -------------------------------------------------------------------------------------------

-- What the attempt has to say about its limits.
local function judge(t, out)
  for _, said in ipairs(out.charges or NONE) do
    local limit, g = limit_of(said.key), gauge_of(said.key)
    spend(limit, g, said.units)
    if said.ok ~= nil then
      local turned = charge(limit, g, t.id, said.ok)
      if turned then
        write_event('circuit', '{"key":' .. json(said.key) .. ',"circuit":"' .. turned .. '"}')
        open_key(said.key)
      end
    end
  end
  for _, pause in ipairs(out.pauses or NONE) do
    local g = gauge_of(pause[1])
    g.paused_until = math.max(g.paused_until, now + pause[2])
  end
end

-- The children that are born with an outcome: where a cancel meets it, none of those that the task was to wait for.
local function children(t, state, spawn)
  if state ~= 'pending' or not t.cancel then return spawn.tasks end
  local given = {}
  for _, n in ipairs(spawn.anyway or NONE) do
    for i = 3 * n + 1, 3 * n + 3 do given[#given + 1] = spawn.tasks[i] end
  end
  return given
end

local function apply_one(t, state, verdict, out)
  for _, event in ipairs(out.events or NONE) do
    log(t, event.kind, event.data)
    if event.kind == 'chunk' then t.streamed = true end
  end
  -- What tells of children that are not born is not remembered: the task, redriven, would look for them.
  for _, step in ipairs(not (state == 'pending' and t.cancel and out.after) and out.steps or NONE) do
    local steps = ns .. 'step:' .. t.id
    call('HSETNX', steps, step.key, cmsgpack.pack({call('HLEN', steps), step.value, now}))
    t.steps = true
    log(t, 'step', '{"step":' .. json(step.key) .. '}')
  end
  judge(t, out)
  if out.spawn then enqueue(out.spawn.sorts, (look(children(t, state, out.spawn), {}))) end
  if state == 'running' then
    if out.progress then log(t, 'progress', '{"progress":' .. out.progress .. '}') end
    t.progress, t.updated_at, t.version = out.progress or t.progress, now, t.version + 1
    touch(t)
  elseif state == 'pending' then
    give_back(t, {verdict = verdict, lane = out.lane, delay_ms = out.delay_ms, refund = out.refund, outcome = out})
  else
    finish(t, state, {reason = out.reason, verdict = verdict, outcome = out})
  end
end

-- finish() for a plain task that succeeded, without decoding it: records with a head in common end with another head
-- in common. Answers false if the lease is not this one. `telling` takes those whose dependents have to be told.
local function end_plain(id, fence, result, telling)
  local raw = raws[id]
  local at = find(raw, '\30', 1, true)
  local h = read_head(sub(raw, 1, at - 1))
  if h.fence ~= fence then return false end
  local made = h.made
  if not made then
    local over = {state = 'completed', version = h.version + 1, updated_at = now, completed_at = now,
                  last_fence = fence, fence = false, worker = false}
    made = {
      head = write_head(setmetatable(over, {__index = h}), 'e'), held = ns .. 'held:' .. h.worker, results = {},
      was = tally_of('running', h), is = tally_of('completed', h), attempt = attempt_of(h, 'succeeded'),
      told = event_front('done', h.number), data = event_tail(h, '{"status":"completed","outcome":"succeeded"}'),
      tells = sub(raw, 1, 1) == TELLS,
      session_id = h.session_id, workflow_id = h.workflow_id,
    }
    h.made = made
  end
  local ended = made.results[result or '']
  if not ended then
    ended = '\30' .. cmsgpack.pack({result = result, attempts = {made.attempt}})
    made.results[result or ''] = ended
  end
  raws[id] = nil
  drop(made.held, id)
  add(OVER.completed, int(now), id)
  note(counts, 'bytes:completed', #(result or '') + sub(raw, at + 25, at + 32))
  go_on(made, id, sub(raw, at), ended)
  if made.tells then telling[#telling + 1] = {id, true} end
  return true
end

-- Is this the outcome that the task had from this very lease?
local function again(t, fence, state, repeated)
  if t.last_fence ~= fence then return false end
  if FINAL[state] then return state == t.state end
  return repeated
end

-- An upstream that does not exist, named by a child of an outcome that will be applied.
local function bad_child(outcomes)
  local born = {}
  for i = 3, #outcomes, 3 do
    local spawn = type(outcomes[i]) == 'table' and outcomes[i].spawn
    local t = spawn and load(outcomes[i - 2])
    if t and t.fence == outcomes[i - 1] then
      local _, _, missing = look(children(t, outcomes[i].state, spawn), born)
      if missing then return missing end
    end
  end
  return nil
end

-- Each outcome whose fence is current takes effect; the others are lost. Those of a repeated turn have taken
-- effect already: they are only judged. Outcomes come in a row, three items each: id, fence, and what it says, a map,
-- or of a success the result alone, false if there is none. The dependents of plain ones are told together, before
-- any other outcome takes effect: it meets what it would meet if each had told its own.
local function apply(outcomes, repeated)
  local lost, telling = {}, {}
  local function tell()
    if #telling == 0 then return end
    settle(telling, SETTLE_BUDGET * #telling, SETTLE_BUDGET)
    telling = {}
  end
  for i = 1, #outcomes, 3 do
    local id, fence, said = outcomes[i], outcomes[i + 1], outcomes[i + 2]
    local plainly = type(said) ~= 'table' and not repeated
    if not (plainly and raws[id] and end_plain(id, fence, said or nil, telling)) then
      local t = load(id)
      if type(said) ~= 'table' then said = {state = 'completed', verdict = 'succeeded', result = said or nil} end
      if t and t.fence == fence then
        if not repeated then
          tell()
          apply_one(t, said.state, said.verdict, said)
        end
      elseif not (t and again(t, fence, said.state, repeated)) then
        lost[#lost + 1] = id
        lost[#lost + 1] = fence
      end
    end
  end
  tell()
  return lost
end

-- claim ----------------------------------------------------------------------------------------------

local refused = {}  -- key -> when to look again (false: only a freed slot opens it)
local sources = {}  -- lines key -> the candidates of a queue and lane
local apart = {}    -- ids of tasks that were not decoded whose body has a key of its own
local budget, chunk, exhausted = 0, 0, false

-- The next member of a sorted set, read in chunks from the last one on; waiters only until their key refuses.
local function head(stream)
  if stream.key and refused[stream.key] ~= nil then return nil end
  if stream.i > #stream.buffer then
    if stream.over then return nil end
    local last = stream.buffer[#stream.buffer]
    stream.buffer = call('ZRANGE', stream.set, last and '(' .. last or '-', '+', 'BYLEX', 'LIMIT', 0, chunk)
    stream.i, stream.over = 1, #stream.buffer < chunk
    stream.ids = {}
    for i, member in ipairs(stream.buffer) do stream.ids[i] = member:sub(22) end
    load_all(stream.ids, true)
  end
  return stream.buffer[stream.i]
end

local function stream_of(set, key)
  return {set = set, key = key, buffer = {}, i = 1, over = false}
end

-- In order: ready ones merged with the waiters of the open lines.
local function source_of(queue, lane)
  local lines = lines_key(queue, lane)
  if not sources[lines] then
    local streams = {stream_of(ready_key(queue, lane)), queue = queue}
    for _, key in ipairs(call('ZRANGEBYSCORE', lines, '-inf', now, 'LIMIT', 0, OPEN_LINES)) do
      if refused[key] ~= nil then
        -- By a task of another lane; whoever waits here must stay known.
        close_line(key, queue, lane, refused[key])
      else
        local stream = stream_of(wait_key(key, queue, lane), key)
        if head(stream) then streams[#streams + 1] = stream else drop_line(key, queue, lane) end
      end
    end
    sources[lines] = streams
  end
  return sources[lines]
end

local function next_of(streams)
  local first, least
  for _, stream in ipairs(streams) do
    local member = head(stream)
    if member and (not least or member < least) then first, least = stream, member end
  end
  if not first then return nil end
  first.i, first.last = first.i + 1, least
  return first.ids[first.i - 1], first
end

-- All its limits, or none and parked on the first that refuses.
local function admitted(t, waits_for)
  for _, limit in ipairs(t.limits) do
    local key, open_at = limit[1], refused[limit[1]]
    if open_at == nil then
      open_at = admit(limit_of(key), gauge_of(key), limit[2])
      if open_at ~= 0 then refused[key] = open_at or false end
    end
    if open_at ~= 0 then
      if waits_for ~= key then
        budget = budget - 1
        t.parked = 'limit:' .. key
        touch(t)
        add_line(key, t.queue, t.lane, open_at)
      end
      close_line(key, t.queue, t.lane, open_at)
      return false
    end
  end
  for _, limit in ipairs(t.limits) do
    take(limit_of(limit[1]), gauge_of(limit[1]), t.id, limit[2])
  end
  return true
end

local function start(t)
  wipe(t, PARKED)
  t.state, t.fence, t.worker = 'running', arg.token, arg.worker
  t.attempt, t.number, t.started_at = t.attempt + 1, t.number + 1, now
  t.updated_at, t.version = now, t.version + 1
  touch(t)
  if t.followed then
    log(t, 'state', '{"status":"running","worker":' .. json(arg.worker) .. ',"lane":"' .. t.lane .. '"}')
  end
  if t.fair_key then claimed(t) end
end

-- start() for a plain task, without decoding it.
local function start_plain(id)
  local raw = raws[id]
  local at = find(raw, '\30', 1, true)
  local h = read_head(sub(raw, 1, at - 1))
  local made = h.made
  if not made then
    local running = {state = 'running', fence = arg.token, worker = arg.worker, attempt = h.attempt + 1,
                     number = h.number + 1, started_at = now, updated_at = now, version = h.version + 1}
    made = {
      head = write_head(setmetatable(running, {__index = h}), sub(raw, 1, 1)), was = tally_of('ready', h),
      is = tally_of('running', h), held = ns .. 'held:' .. arg.worker, leased = true,
      told = h.followed and event_front('state', h.number + 1),
      data = event_tail(h, '{"status":"running","worker":' .. json(arg.worker) .. ',"lane":"' .. h.lane .. '"}'),
      session_id = h.session_id, workflow_id = h.workflow_id,
    }
    h.made = made
  end
  raws[id] = nil
  if sub(raw, at + 33, at + 37) == 'apart' then apart[id] = true end
  add(made.held, sub(raw, at + 9, at + 24), id)
  go_on(made, id, sub(raw, at), '')
end

-- The next task of a lane that may run now is started; its id.
local function start_next(streams)
  while true do
    local id, stream = next_of(streams)
    if not id then
      streams.bare = #streams == 1  -- seen to its end, with no open line
      return nil
    end
    local t = tasks[id]
    if raws[id] then
      start_plain(id)
      return id
    elseif t and (not t.limits or admitted(t, stream.key)) then
      start(t)
      return id
    elseif budget <= 0 then
      exhausted = true
      return nil
    end
  end
end

-- Wants name a queue and lane again and again: a worker asks for its lanes in turns, 120 wants for 250 seats.
local function paused_queues()
  local queues, paused, seen = {}, {}, {}
  for _, want in ipairs(arg.wants) do
    if not seen[want[1]] then queues[#queues + 1] = want[1] end
    seen[want[1]] = true
  end
  for i, raw in ipairs(call('HMGET', ns .. 'rec:queue', unpack(queues))) do
    if raw and document(cmsgpack.unpack(raw)[1]).paused == true then paused[queues[i]] = true end
  end
  return paused
end

-- Leases for the wants, in their order: ids.
local function claim()
  local picked = {}
  if #arg.wants == 0 or arg.room <= 0 then return picked end
  local paused = paused_queues()
  chunk, budget = math.max(8, math.min(arg.room, 500)), arg.room + PARK_BUDGET
  for pass = 1, 2 do
    for _, want in ipairs(arg.wants) do
      local n = arg.room - #picked
      if pass == 1 then n = math.min(n, want[3]) end
      if paused[want[1]] then n = 0 end
      local streams = n > 0 and source_of(want[1], want[2])
      for _ = 1, n do
        local id = start_next(streams)
        if not id then break end
        picked[#picked + 1] = id
      end
    end
  end
  -- Whoever was looked at in a ready set has left it: started, or parked on a limit.
  local bare = {}
  for _, streams in pairs(sources) do
    local ready, queue = streams[1], streams.queue
    if ready.last then call('ZREMRANGEBYLEX', ready.set, '-', '[' .. ready.last) end
    if streams.bare and not exhausted then bare[queue] = (bare[queue] or 0) + 1 end
  end
  -- With both lanes bare, whom this turn has made ready it has taken, too: nobody else needs to look.
  for queue, lanes in pairs(bare) do
    if lanes == 2 then topics['queue:' .. queue] = nil end
  end
  return picked
end

-- The record of each; {record, body or '', steps, inbox} of one with more than that.
local function leases_of(ids)
  local leases = {}
  for i, id in ipairs(ids) do
    local t = tasks[id] or NONE
    if apart[id] or t.body == false or t.steps or t.inbox then
      leases[i] = {
        packed[id], (apart[id] or t.body == false) and call('GET', ns .. 'body:' .. id) or '',
        t.steps and call('HGETALL', ns .. 'step:' .. id) or NONE,
        t.inbox and call('LRANGE', ns .. 'inbox:' .. id, 0, -1) or NONE,
      }
    else
      leases[i] = packed[id]
    end
  end
  return leases
end

-- the turn -------------------------------------------------------------------------------------------

local function to_stop()
  local found = {}
  for _, t in ipairs(load_list(call('ZRANGE', ns .. 'cancel:' .. arg.worker, 0, -1))) do
    found[#found + 1] = t.id
    found[#found + 1] = t.cancel
  end
  return found
end

local function next_due()
  if #arg.wants == 0 then return false end
  local due = tonumber(call('ZRANGE', ns .. 'tasks:scheduled', 0, 0, 'WITHSCORES')[2])
  local seen = {}
  for _, want in ipairs(arg.wants) do
    local lines = lines_key(want[1], want[2])
    if not seen[lines] then
      seen[lines] = true
      local line = call('ZRANGEBYSCORE', lines, '(' .. int(now), '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      local open_at = tonumber(line[2])
      if open_at and (not due or open_at < due) then due = open_at end
    end
  end
  return due or false
end

local function pressure()
  local found, seen = {}, {}
  for _, want in ipairs(arg.pressure and arg.wants or NONE) do
    if not seen[want[1]] then
      seen[want[1]] = true
      found[#found + 1] = want[1]
      found[#found + 1] = math.min(call('ZCARD', ready_key(want[1], 'retry')), PRESSURE_CEILING)
    end
  end
  return found
end

local function exchange()
  local worker = read_worker(arg.worker)
  local tokens, repeated = worker and worker.tokens or {}, false
  for _, token in ipairs(tokens) do repeated = repeated or token == arg.token end
  local ids = {}
  for i = 1, #arg.outcomes, 3 do ids[#ids + 1] = arg.outcomes[i] end
  load_all(ids, true)
  local missing = not repeated and bad_child(arg.outcomes)
  if missing then return {'missing', missing} end

  local lost = apply(arg.outcomes, repeated)
  local deal = {'ok', now, lost}
  if (not worker and not arg.info) or (worker and worker.evicted) then
    deal[4] = 'evicted'
    return deal
  end
  if arg.leaving then
    flush()
    for _, t in ipairs(held_by(arg.worker, -1)) do
      give_back(t, {verdict = 'released', refund = true})
    end
    drop_worker(arg.worker)
    deal[4] = 'left'
    return deal
  end
  if not repeated and (arg.room > 0 or #arg.outcomes > 0) then
    tokens[#tokens + 1] = arg.token
    if #tokens > REMEMBERED_TURNS then table.remove(tokens, 1) end
  end
  call('SET', ns .. 'worker:' .. arg.worker, cmsgpack.pack({
    info = arg.info or worker.info, seen_at = now, lease_until = now + arg.lease_ms, tokens = tokens}))
  call('ZADD', ns .. 'workers', now + arg.lease_ms, arg.worker)
  local unparked = unpark_due(DUE_BUDGET)
  flush()
  deal[4] = 'going'
  if repeated then
    local given = {}
    for _, t in ipairs(held_by(arg.worker, -1)) do
      if t.fence == arg.token then given[#given + 1] = t.id end
    end
    deal[5] = leases_of(given)
    return deal
  end
  local picked = claim()
  flush()
  deal[5] = leases_of(picked)
  deal[6] = to_stop()
  deal[7] = next_due()
  deal[8] = (exhausted or unparked == DUE_BUDGET) and 1 or 0
  deal[9] = pressure()
  deal[10] = untold and 1 or 0
  return deal
end
