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

local mark_up

do  -- a script has at most 200 locals of its own

-- Write a record anew that has a mark and was not decoded, with another head and map, which `make` says once for all
-- that have these; `name` is what for. Answers what it said: false is nothing to do.
local function rewrite(id, name, make)
  local raw = raws[id]
  local head_end = find(raw, '\30', 1, true)
  local map_at = find(raw, '\31', head_end + 38, true) + 1 + (tonumber(sub(raw, head_end + 33, head_end + 37)) or 0)
  local log_at = map_at + tonumber(sub(raw, head_end + 1, head_end + 8))
  local h, map = read_head(sub(raw, 1, head_end - 1)), sub(raw, map_at, log_at - 1)
  name = name .. map
  h.rewritten = h.rewritten or {}
  local made = h.rewritten[name]
  if made == nil then
    made = make(h, map, sub(raw, 1, 1))
    h.rewritten[name] = made
  end
  if not made then return false end
  raw = made.head .. format('\30%08d', #made.map) .. sub(raw, head_end + 9, map_at - 1) .. made.map .. sub(raw, log_at)
  local w = #written
  written[w + 1], written[w + 2], raws[id], anew[id] = ns .. 'task:' .. id, raw, raw, true
  return made
end

local function with_downs(h, map, mark)
  local rest = cmsgpack.unpack(map)
  if rest.downs then return false end
  rest.downs = true
  return {head = write_head(h, mark == PLAIN and TELLS or mark), map = pack_map(rest)}
end

-- A task that may be waited for is not over, and its end has dependents to tell. False if it is over.
function mark_up(id)
  local raw = raws[id]
  if raw then
    if FINAL[read_head(sub(raw, 1, find(raw, '\30', 1, true) - 1)).state] then return false end
    rewrite(id, 'downs', with_downs)
    return true
  end
  local t = load(id)
  if FINAL[t.state] then return false end
  if not t.downs then
    t.downs = true
    touch(t)
  end
  return true
end

-- What becomes of a record that waits when `n` of its upstreams are over, false if only place() can say: the same for
-- all with this head and map.
local function released(h, map, n)
  local rest = setmetatable(cmsgpack.unpack(map), DEFAULTS)
  if rest.awaits > n then
    rest.awaits = rest.awaits - n
    return {head = write_head(h, WAITS), map = pack_map(rest)}
  elseif h.run_at > now then
    return false
  end
  rest.parked, rest.awaits = nil, nil
  local ready = setmetatable({version = h.version + 1, rank = rank_of(h.queue, h.lane, nil, h.run_at)}, {__index = h})
  return {
    head = write_head(ready, rest.downs and TELLS or PLAIN), map = pack_map(rest),
    ready = ready_key(h.queue, h.lane), front = member_of({priority = h.priority, rank = ready.rank, id = ''}),
    was = tally_of('blocked', h), is = tally_of('ready', h), topic = 'queue:' .. h.queue,
  }
end

-- tell() for a task that waits, has nothing else about it and was not decoded. Answers false if it is none.
local function tell_plain(id, n)
  local raw = raws[id]
  if not raw or sub(raw, 1, 1) ~= WAITS then return false end
  local made = rewrite(id, n, function(h, map) return released(h, map, n) end)
  if not made then return false end
  if made.ready then
    drop(ns .. 'status:blocked', id)
    add(made.ready, '0', made.front .. id)
    note(counts, made.was, -1)
    note(counts, made.is, 1)
    topics[made.topic] = true
  end
  return true
end

-- `n` of the upstreams that a task waits for are over.
local function tell(id, n)
  if tell_plain(id, n) then return end
  local down = load(id)
  if down.state ~= 'pending' or down.parked ~= 'deps' then return end
  if down.awaits > n then
    down.awaits = down.awaits - n
    touch(down)
  else
    unpark(down)
  end
end

-- The dependents of a task, from the first on, that are to be told now: id and seq by turns.
local function to_tell(up, room)
  local downs = call('ZRANGE', ns .. 'down:' .. up, 0, room, 'WITHSCORES')
  if #downs > 2 * room then
    call('SADD', ns .. 'unsettled', up)
    untold = true
    downs[#downs], downs[#downs - 1] = nil, nil
  end
  return downs
end

-- Tell the dependents of ended tasks: one upstream less, or cancelled. How many were told. `each`: the most that one of
-- them tells. Edges and records are read and written for all together, and who has several of them for upstreams is
-- told once.
function settle(over, budget, each)
  local told, less, ids, ups = 0, {}, {}, {}
  while #over > 0 do
    local round, found, all = over, {}, {}
    over = {}
    for i, one in ipairs(round) do
      local downs = to_tell(one[1], math.max(math.min(budget - told, each or budget), 0))
      found[i], told = downs, told + #downs / 2
      for k = 1, #downs, 2 do all[#all + 1] = downs[k] end
    end
    load_all(all, true)
    for i, one in ipairs(round) do
      local up, ok, moved, gone_by = one[1], one[2], {}, {}
      for k = 1, #found[i], 2 do
        local id = found[i][k]
        if raws[id] or tasks[id] then
          moved[#moved + 1], moved[#moved + 2] = found[i][k + 1], id
          gone_by[#gone_by + 1] = id
          if not ups[id] then
            ids[#ids + 1], ups[id], less[id] = id, {}, 0
          end
          local of = ups[id]
          of[#of + 1], of[#of + 2] = up, '1'
          local down = not ok and load(id)
          if down and down.needs == 'success' and down.state == 'pending' and down.parked == 'deps' then
            -- finish() would recurse; the loop goes on with its dependents instead.
            finish(down, 'cancelled', {reason = 'upstream', quiet = true})
            over[#over + 1] = {id, false}
          else
            less[id] = less[id] + 1
          end
        end
      end
      many('ZADD', ns .. 'told:' .. up, moved)
      many('ZREM', ns .. 'down:' .. up, gone_by)
    end
  end
  for _, id in ipairs(ids) do
    many('HSET', ns .. 'up:' .. id, ups[id])
    if less[id] > 0 then tell(id, less[id]) end
  end
  return told
end

end
