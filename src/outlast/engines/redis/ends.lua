-- How an attempt ends: a task is finished, or put back; limits freed, dependents told.
--
-- Every path that takes a task out of running or into a final state goes through here: outcomes, cancels,
-- evictions, expiry, resolving by hand.
--
--   up:<id>      hash: the tasks that this one waits for -> "1" once told, else "0"
--   down:<id>    zset by seq: the tasks that wait for this one and have not been told
--   told:<id>    zset by seq: those that have been
--   unsettled    set: ended tasks with dependents that have not been told yet
--   unique:<key> string: {id, until or false, digest or false}, who holds a unique key; until: zset of keys

local SETTLE_BUDGET, KEPT_ATTEMPTS = 500, 50
local PARKED, ENDED, FAILED = {'parked', 'wake_at'}, {'reason', 'result', 'kept'}, {'error', 'fingerprint'}
local LEASED = {'fence', 'last_fence', 'worker', 'cancel', 'streamed'}
local settle
local untold = false  -- were dependents left to a sweep?

-- unique keys ----------------------------------------------------------------------------------------

-- {id, until, digest} of whoever holds the key now.
local function reserved(key)
  local raw = call('GET', ns .. 'unique:' .. key)
  local held = raw and cmsgpack.unpack(raw)
  if held and (not held[2] or held[2] > now) then return held end
  return nil
end

local function reserve(key, id, till, digest)
  call('SET', ns .. 'unique:' .. key, cmsgpack.pack({id, till or false, digest or false}))
  if till then call('ZADD', ns .. 'until', till, key) else call('ZREM', ns .. 'until', key) end
end

-- The key is free again: at the task's end, or when it is forgotten. One that was taken for a span keeps the
-- task: without it the key could not be answered.
local function release_key(t, forgotten)
  if not t.unique_key then return end
  local raw = call('GET', ns .. 'unique:' .. t.unique_key)
  local held = raw and cmsgpack.unpack(raw)
  if not held or held[1] ~= t.id then return end
  if held[2] and not forgotten then
    if held[2] > now then t.kept = held[2] end
  else
    call('UNLINK', ns .. 'unique:' .. t.unique_key)
    call('ZREM', ns .. 'until', t.unique_key)
  end
end

-- edges ----------------------------------------------------------------------------------------------

local function set_edge(up, down, done)
  local t = tasks[up]
  if t and not t.downs then
    t.downs = true
    touch(t)
  end
  call('HSET', ns .. 'up:' .. down.id, up, done and '1' or '0')
  call('ZADD', ns .. (done and 'told:' or 'down:') .. up, down.seq, down.id)
  call('ZREM', ns .. (done and 'down:' or 'told:') .. up, down.id)
end

local function open_edges(id)
  local open = 0
  for _, done in ipairs(call('HVALS', ns .. 'up:' .. id)) do
    if done == '0' then open = open + 1 end
  end
  return open
end

-- More upstream tasks, however they end; how many of them are not over yet.
local function add_edges(t, after)
  local open, seen = 0, {}
  load_all(after)
  for _, id in ipairs(after) do
    local up = tasks[id]
    if up and not seen[id] then  -- a forgotten one is as good as over
      seen[id] = true
      set_edge(id, t, FINAL[up.state])
      if not FINAL[up.state] then open = open + 1 end
    end
  end
  t.needs, t.edges = 'any', true
  return open
end

-- places ---------------------------------------------------------------------------------------------

-- Where a pending task with no upstream left goes.
local function place(t, run_at)
  wipe(t, PARKED)
  t.awaits, t.rank = 0, run_at
  if t.hold and not (t.inbox and t.inbox[t.hold]) then
    t.parked, t.awaits = 'signal:' .. t.hold, 1
    return
  end
  if run_at > now then
    t.parked, t.wake_at = 'time', run_at
    return
  end
  for _, limit in ipairs(t.limits or NONE) do
    if line_there(limit[1], t.queue, t.lane) then
      t.parked = 'limit:' .. limit[1]
      break
    end
  end
  t.rank = rank_of(t.queue, t.lane, t.fair_key, run_at)
  topics['queue:' .. t.queue] = true
end

-- What it was parked on is over.
local function unpark(t)
  place(t, t.run_at)
  t.version = t.version + 1
  touch(t)
end

-- Tasks parked on time (or on a signal with a deadline) whose moment has come.
local function unpark_due(budget)
  local due = call('ZRANGEBYSCORE', ns .. 'tasks:scheduled', '-inf', now, 'LIMIT', 0, budget)
  for _, t in ipairs(load_list(due)) do
    t.rank = rank_of(t.queue, t.lane, t.fair_key, t.wake_at)
    wipe(t, PARKED)
    t.awaits = 0
    topics['queue:' .. t.queue] = true
    touch(t)
  end
  return #due
end

-- the end of an attempt ------------------------------------------------------------------------------

-- Give back what the lease held.
local function free(t)
  for _, limit in ipairs(t.limits or NONE) do
    free_gauge(gauge_of(limit[1]), t.id)
    open_key(limit[1])
  end
end

local function attempt_of(t, verdict, told)
  return t.number .. '\31' .. t.worker .. '\31' .. t.lane .. '\31' .. int(t.started_at) .. '\31' .. int(now) .. '\31'
    .. verdict .. '\31' .. (told or '')
end

-- The attempts with one more; the first and the last of them are kept.
local function history(t, verdict, told)
  local attempts = t.attempts or {}
  attempts[#attempts + 1] = attempt_of(t, verdict, told)
  if #attempts > KEPT_ATTEMPTS then table.remove(attempts, KEPT_ATTEMPTS / 2 + 1) end
  t.attempts = attempts
end

-- Into a final state, with everything that follows from it. `how`: reason, verdict, outcome, result, error,
-- told (the error in short), refund, lost; quiet: the caller tells the dependents.
local function finish(t, state, how)
  local out = how.outcome or NONE
  local verdict, told = how.verdict or 'succeeded', how.told or out.told
  local ran, fence, streamed = t.state == 'running', t.fence, t.streamed
  if ran then
    history(t, verdict, told)
    free(t)
    if how.lost or how.refund or out.refund then t.attempt = t.attempt - 1 end
  end
  if how.lost then t.losses = t.losses + 1 end
  wipe(t, PARKED)
  wipe(t, LEASED)
  wipe(t, ENDED)
  t.state, t.completed_at, t.updated_at, t.awaits, t.version = state, now, now, 0, t.version + 1
  if how.outcome then t.last_fence = fence end
  if how.reason then t.reason = how.reason end
  if how.result or out.result then t.result = how.result or out.result end
  if out.progress then t.progress = out.progress end
  if state == 'completed' then
    wipe(t, FAILED)  -- what failed before a success is in the history only
  else
    if how.error or out.error then t.error = how.error or out.error end
    if out.fingerprint then t.fingerprint = out.fingerprint end
  end
  touch(t)
  release_key(t)
  if streamed and state ~= 'completed' then log(t, 'rollback', '{"outcome":"' .. verdict .. '"}') end
  log(t, 'done', '{"status":"' .. state .. '"' .. (ran and ',"outcome":"' .. verdict .. '"' or '')
    .. (how.reason and ',"reason":' .. json(how.reason) or '') .. (told and ',"error":' .. told or '') .. '}')
  if t.downs and not how.quiet then
    settle({{t.id, state == 'completed'}}, SETTLE_BUDGET)
  end
end

-- From running to pending again: ready, or parked on what the outcome says. `how`: verdict, lane, delay_ms,
-- refund, lost, outcome, error, told.
local function put_back(t, how)
  local out, delay_ms, verdict = how.outcome or NONE, how.delay_ms or 0, how.verdict
  local told, streamed = how.told or out.told, t.streamed
  -- A released task keeps its place in the line; everything else is due from now on.
  local run_at = (verdict == 'released' and delay_ms == 0) and t.run_at or now + delay_ms
  history(t, verdict, told)
  free(t)
  local parked, awaits = delay_ms > 0 and 'time' or nil, 0
  if out.after then
    awaits = add_edges(t, out.after)
    if awaits > 0 then parked = 'deps' end
  elseif out.park then
    local come = t.inbox and t.inbox[out.park:sub(8)] or 0
    parked = come < out.awaits and out.park or nil
    awaits = parked and out.awaits or 0
  end
  local fence = t.fence
  wipe(t, PARKED)
  wipe(t, LEASED)
  wipe(t, {'hold'})
  t.state, t.awaits, t.lane, t.run_at, t.rank = 'pending', awaits, how.lane or t.lane, run_at, run_at
  if how.outcome then t.last_fence = fence end
  if parked then t.parked = parked end
  if delay_ms > 0 and parked and parked ~= 'deps' then t.wake_at = now + delay_ms end
  if not parked then
    t.rank = rank_of(t.queue, t.lane, t.fair_key, run_at)
    topics['queue:' .. t.queue] = true
  end
  if how.refund then t.attempt = t.attempt - 1 end
  if how.lost then t.losses = t.losses + 1 end
  if how.error or out.error then t.error = how.error or out.error end
  for _, name in ipairs({'fingerprint', 'progress', 'timeout_ms'}) do
    if out[name] then t[name] = out[name] end
  end
  if t.max_age_ms and how.lane then t.expires_at = run_at + t.max_age_ms end  -- without a lane it ages on
  t.updated_at, t.version = now, t.version + 1
  touch(t)
  if streamed then log(t, 'rollback', '{"outcome":"' .. verdict .. '"}') end
  if t.followed or verdict == 'failed' or verdict == 'timed_out' or verdict == 'stalled' then
    log(t, 'state', '{"status":"' .. status_of('pending', parked, t.lane) .. '","outcome":"' .. verdict .. '"'
      .. (t.wake_at and ',"run_at":' .. int(t.wake_at) or '')
      .. (told and ',"error":' .. told or '') .. '}')
  end
end

-- put_back, unless the task was to be cancelled: then that is what happens.
local function give_back(t, how)
  if t.cancel then
    finish(t, 'cancelled', {reason = t.cancel, verdict = how.verdict, outcome = how.outcome, refund = how.refund})
  else
    put_back(t, how)
  end
end

-- dependencies ---------------------------------------------------------------------------------------

-- Tell the dependents of ended tasks: one upstream less, or cancelled. How many were told.
function settle(over, budget)
  local told = 0
  while #over > 0 do
    local up, ok = unpack(table.remove(over))
    local room = math.max(budget - told, 0)
    local downs = call('ZRANGE', ns .. 'down:' .. up, 0, room)
    if #downs > room then
      call('SADD', ns .. 'unsettled', up)
      untold = true
      table.remove(downs)
    end
    for _, down in ipairs(load_list(downs)) do
      told = told + 1
      set_edge(up, down, true)
      if down.state == 'pending' and down.parked == 'deps' then
        if not ok and down.needs == 'success' then
          -- finish() would recurse; the loop goes on with its dependents instead.
          finish(down, 'cancelled', {reason = 'upstream', quiet = true})
          over[#over + 1] = {down.id, false}
        elseif down.awaits > 1 then
          down.awaits = down.awaits - 1
          touch(down)
        else
          unpark(down)
        end
      end
    end
  end
  return told
end
