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

local function apply_one(t, out)
  for _, event in ipairs(out.events or NONE) do
    log(t, event.kind, event.data)
    if event.kind == 'chunk' then t.streamed = true end
  end
  for _, step in ipairs(out.steps or NONE) do
    local steps = ns .. 'step:' .. t.id
    call('HSETNX', steps, step.key, cmsgpack.pack({call('HLEN', steps), step.value, now}))
    t.steps = true
    log(t, 'step', '{"step":' .. json(step.key) .. '}')
  end
  judge(t, out)
  if out.spawn then enqueue((look(out.spawn, {}))) end
  if out.state == 'running' then
    if out.progress then log(t, 'progress', '{"progress":' .. out.progress .. '}') end
    t.progress, t.updated_at, t.version = out.progress or t.progress, now, t.version + 1
    touch(t)
  elseif out.state == 'pending' then
    give_back(t, {verdict = out.verdict, lane = out.lane, delay_ms = out.delay_ms, refund = out.refund,
                  outcome = out})
  else
    finish(t, out.state, {reason = out.reason, verdict = out.verdict, outcome = out})
  end
end

-- Is this the outcome that the task had from this very lease?
local function again(t, out, repeated)
  if t.last_fence ~= out.fence then return false end
  if FINAL[out.state] then return out.state == t.state end
  return repeated
end

-- An upstream that does not exist, named by a child of an outcome that will be applied.
local function bad_child(outcomes)
  local born = {}
  for _, out in ipairs(outcomes) do
    local t = tasks[out.id]
    if out.spawn and t and t.fence == out.fence then
      local _, _, missing = look(out.spawn, born)
      if missing then return missing end
    end
  end
  return nil
end

-- Each outcome whose fence is current takes effect; the others are lost. Those of a repeated turn have taken
-- effect already: they are only judged.
local function apply(outcomes, repeated)
  local lost = {}
  for _, out in ipairs(outcomes) do
    local t = tasks[out.id]
    if t and t.fence == out.fence then
      if not repeated then apply_one(t, out) end
    elseif not (t and again(t, out, repeated)) then
      lost[#lost + 1] = out.id
      lost[#lost + 1] = out.fence
    end
  end
  return lost
end

-- claim ----------------------------------------------------------------------------------------------

local refused = {}  -- key -> when to look again (false: only a freed slot opens it)
local sources = {}  -- lines key -> the candidates of a queue and lane
local budget, chunk, exhausted = 0, 0, false

-- The next member of a sorted set, read in chunks from the last one on; waiters only until their key refuses.
local function head(stream)
  if stream.key and refused[stream.key] ~= nil then return nil end
  if stream.i > #stream.buffer then
    if stream.over then return nil end
    local last = stream.buffer[#stream.buffer]
    stream.buffer = call('ZRANGE', stream.set, last and '(' .. last or '-', '+', 'BYLEX', 'LIMIT', 0, chunk)
    stream.i, stream.over = 1, #stream.buffer < chunk
    local ids = {}
    for i, member in ipairs(stream.buffer) do ids[i] = member:sub(22) end
    load_all(ids)
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
    local streams = {stream_of(ready_key(queue, lane))}
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
  first.i = first.i + 1
  return tasks[least:sub(22)], first.key
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

-- The next task of a lane that may run now; it holds its limits already.
local function next_candidate(queue, lane)
  local streams = source_of(queue, lane)
  while true do
    local t, waits_for = next_of(streams)
    if not t then return nil end
    if not t.limits or admitted(t, waits_for) then return t end
    if budget <= 0 then
      exhausted = true
      return nil
    end
  end
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

local function paused_queues()
  local queues, paused = {}, {}
  for _, want in ipairs(arg.wants) do queues[#queues + 1] = want[1] end
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
      for _ = 1, n do
        local t = next_candidate(want[1], want[2])
        if not t then break end
        start(t)
        picked[#picked + 1] = t.id
      end
    end
  end
  return picked
end

-- {record, body, steps, inbox} of each.
local function leases_of(ids)
  local leases = {}
  for from = 1, #ids, CHUNK do
    local keys = {}
    for i = from, math.min(from + CHUNK - 1, #ids) do keys[#keys + 1] = ns .. 'body:' .. ids[i] end
    for i, body in ipairs(call('MGET', unpack(keys))) do
      local t = tasks[ids[from + i - 1]]
      leases[#leases + 1] = {
        packed[t.id], body,
        t.steps and call('HGETALL', ns .. 'step:' .. t.id) or NONE,
        t.inbox and call('LRANGE', ns .. 'inbox:' .. t.id, 0, -1) or NONE,
      }
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
  for _, want in ipairs(arg.wants) do
    local lines = lines_key(want[1], want[2])
    local line = call('ZRANGEBYSCORE', lines, '(' .. int(now), '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local open_at = tonumber(line[2])
    if open_at and (not due or open_at < due) then due = open_at end
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
  for i, out in ipairs(arg.outcomes) do ids[i] = out.id end
  load_all(ids)
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
  if arg.room > 0 or #arg.outcomes > 0 then
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
  return deal
end
