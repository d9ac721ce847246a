-- sweep: what nobody's turn takes care of. Bounded, idempotent, safe from everywhere at once.
--
--   workers, worker:<id>, held:<id>   the lapsed ones lose what they hold
--   tasks:scheduled, aging, overdue   what has come due
--   unsettled                         dependents left over
--   rec:retention, kept, over:<state>, dlq:tasks   what may be forgotten
--   log, logs:*                       what may be pruned; meta: up to where
--   expires                           zset by expires_at of "<kind>\31<key>": records; until: unique keys
--   gauges, gauge:, hold:, line:<key> slots are what leases hold; fairs, fair:*: ranks of keys without tasks

local RESCUE_JITTER_MS = 1000  -- rescued tasks come back spread over up to this span, 10 ms each: no stampede

local done = {rescued = 0, died = 0, expired = 0, overdue = 0, unparked = 0, settled = 0, forgotten = 0,
              workers = 0, more = false}

-- The worker of a running task is lost: again while its loss budget lasts.
local function rescue(t, spread_ms)
  if t.cancel then
    finish(t, 'cancelled', {reason = t.cancel, verdict = 'stalled', lost = true})
    done.died = done.died + 1
  elseif t.losses + 1 >= t.max_losses then
    finish(t, 'dead', {reason = 'stalled', verdict = 'stalled', error = arg.stalled, told = arg.stalled_told,
                       lost = true})
    done.died = done.died + 1
  else
    put_back(t, {verdict = 'stalled', lane = 'retry', delay_ms = math.random(1, spread_ms), refund = true,
                 lost = true, error = arg.stalled, told = arg.stalled_told})
    done.rescued = done.rescued + 1
  end
end

-- Free the tasks of workers whose lease is over; drop a worker once it holds nothing.
local function evict()
  local budget, seen = arg.budget, {}
  local lapsed = call('ZRANGEBYSCORE', ns .. 'workers', '-inf', now, 'LIMIT', 0, 100)
  for _, list in ipairs({arg.gone, lapsed}) do
    for _, id in ipairs(list) do
      if not seen[id] then
        seen[id] = true
        if budget <= 0 then
          done.more = true
          return
        end
        local held = held_by(id, budget - 1)
        budget = budget - #held
        for _, t in ipairs(held) do rescue(t, math.min(RESCUE_JITTER_MS, 10 * #held)) end
        local worker = read_worker(id)
        if budget <= 0 then
          done.more = true
          if worker then
            worker.evicted = true
            call('SET', ns .. 'worker:' .. id, cmsgpack.pack(worker))
            call('ZADD', ns .. 'workers', 'XX', math.min(now, worker.lease_until), id)
          end
        else
          drop_worker(id)
          done.workers = done.workers + 1
        end
        topics['worker:' .. id] = true
      end
    end
  end
end

-- Tasks that waited longer than their max_age.
local function expire()
  local old = call('ZRANGEBYSCORE', ns .. 'aging', '-inf', now, 'LIMIT', 0, arg.budget)
  for _, t in ipairs(load_list(old)) do
    if t.state == 'pending' then finish(t, 'dead', {reason = 'expired'}) end  -- else cancelled by one before it
  end
  done.expired = #old
  flush()
end

local function mark_overdue()
  local late = call('ZRANGEBYSCORE', ns .. 'overdue', '-inf', now, 'LIMIT', 0, arg.budget)
  for _, t in ipairs(load_list(late)) do
    t.overdue, t.version = true, t.version + 1
    touch(t)
    log(t, 'overdue', '{"status":"' .. t.state .. '"}')
  end
  done.overdue = #late
end

local function settle_rest()
  for _, id in ipairs(call('SRANDMEMBER', ns .. 'unsettled', arg.budget)) do
    if done.settled >= arg.budget then break end
    local t = load(id)
    call('SREM', ns .. 'unsettled', id)
    if t then
      done.settled = done.settled + settle({{id, t.state == 'completed'}}, arg.budget - done.settled)
    end
  end
  flush()
end

-- retention ------------------------------------------------------------------------------------------

local function forget_oldest(set, n)
  if n <= 0 then return end
  for _, t in ipairs(load_list(call('ZRANGE', set, 0, math.min(n, arg.budget) - 1))) do
    forget(t)
    done.forgotten = done.forgotten + 1
  end
end

local function trim_bytes(state, most)
  for _, t in ipairs(load_list(call('ZRANGE', OVER[state], 0, arg.budget - 1))) do
    if tonumber(call('HGET', ns .. 'metrics:tasks:by_state', 'bytes:' .. state) or 0) <= most then return end
    forget(t)
    done.forgotten = done.forgotten + 1
  end
end

local function prune_log(age_ms)
  local last, entry_id, looked = nil, nil, 0
  for _, entry in ipairs(call('XRANGE', ns .. 'log', '-', '+', 'COUNT', arg.budget)) do
    local moment, task, session, workflow = entry[2][2]:match(
      '^[^\31]*\31(%d+)\31%d+\31([^\31]*)\31[^\31]*\31[^\31]*\31([^\31]*)\31([^\31]*)\31')
    if tonumber(moment) >= now - age_ms or looked >= arg.budget then break end
    entry_id = entry[1]
    local size = tonumber(entry[2][1])
    local from, first = cursor_of(entry_id, size)
    looked = looked + size
    for k = 0, size - 1 do
      last = from .. first + k
      -- Its indexes hold the same cursors in the same order; the few in a record may stay.
      if task ~= '' and size == 1 then call('LREM', ns .. 'logs:task:' .. task, 1, last) end
      if session ~= '' then call('LREM', ns .. 'logs:session:' .. session, 1, last) end
      if workflow ~= '' then call('LREM', ns .. 'logs:workflow:' .. workflow, 1, last) end
    end
    if size > 1 then call('UNLINK', ns .. 'holes:' .. entry_id) end
  end
  if last then
    local ms, n = entry_id:match('^(%d+)-(%d+)$')
    call('XTRIM', ns .. 'log', 'MINID', ms .. '-' .. format('%d', n + 1))
    call('HSET', ns .. 'meta', 'pruned', last)
  end
end

-- What was kept only for its unique key may go.
local function let_go()
  for _, t in ipairs(load_list(call('ZRANGEBYSCORE', ns .. 'kept', '-inf', now, 'LIMIT', 0, arg.budget))) do
    t.kept = nil
    touch(t)
  end
  flush()
end

-- Records of kind retention, key = a final state or `log`: age_ms, count, bytes.
local function retain()
  local rules = call('HGETALL', ns .. 'rec:retention')
  for i = 1, #rules, 2 do
    local key, rule = rules[i], document(cmsgpack.unpack(rules[i + 1])[1])
    local age_ms, count, bytes = tonumber(rule.age_ms), tonumber(rule.count), tonumber(rule.bytes)
    if key == 'log' then
      if age_ms then prune_log(age_ms) end
    elseif OVER[key] then
      local set = OVER[key]
      if age_ms then forget_oldest(set, call('ZCOUNT', set, '-inf', '(' .. now - age_ms)) end
      if count then forget_oldest(set, call('ZCARD', set) - count) end
      if bytes then trim_bytes(key, bytes) end
    end
  end
end

-- what is left over ----------------------------------------------------------------------------------

local function drop_expired()
  local keys = call('ZRANGEBYSCORE', ns .. 'until', '-inf', now, 'LIMIT', 0, arg.budget)
  for _, key in ipairs(keys) do
    call('UNLINK', ns .. 'unique:' .. key)
    call('ZREM', ns .. 'until', key)
  end
  local records = call('ZRANGEBYSCORE', ns .. 'expires', '-inf', now, 'LIMIT', 0, arg.budget)
  for _, name in ipairs(records) do
    local kind, key = name:match('^([^\31]*)\31(.*)$')
    local raw = call('HGET', ns .. 'rec:' .. kind, key)
    call('HDEL', ns .. 'rec:' .. kind, key)
    call('ZREM', ns .. 'expires', name)
    if kind == 'limit' and raw then limit_changed(key, cmsgpack.unpack(raw)[1]) end
  end
end

-- Slots are what leases hold: should a gauge ever say otherwise, the leases are right. A hundred keys a sweep.
local function recount()
  local cursor = call('HGET', ns .. 'meta', 'recount') or '0'
  local scan = call('SSCAN', ns .. 'gauges', cursor, 'COUNT', 100)
  call('HSET', ns .. 'meta', 'recount', scan[1])
  for _, key in ipairs(scan[2]) do
    local g = gauge_of(key)
    local holders = call('SMEMBERS', ns .. 'hold:' .. key)
    load_all(holders)
    for _, id in ipairs(holders) do
      if not tasks[id] or tasks[id].state ~= 'running' then
        free_gauge(g, id)
        open_key(key)
      end
    end
    if g.probe ~= '' and call('SISMEMBER', ns .. 'hold:' .. key, g.probe) == 0 then
      g.probe = ''
      open_key(key)
    end
    local last = g.buckets[#g.buckets]
    local stale = not last or (last[1] > 0 and last[1] <= now - MONTH_MS)
    if g.used == 0 and g.probe == '' and g.open_until == 0 and stale and g.tat_us <= now * 1000
        and g.paused_until <= now and call('EXISTS', ns .. 'line:' .. key) == 0 then
      call('UNLINK', ns .. 'gauge:' .. key)
      call('SREM', ns .. 'gauges', key)
      gauges[key] = nil
    end
  end
end

-- A key's rank that claiming has passed says nothing any more.
local function drop_stale_ranks()
  for _, where in ipairs(call('SRANDMEMBER', ns .. 'fairs', 10)) do
    local ranks = ns .. 'fair:' .. where
    local clock_rank = tonumber(call('HGET', ranks, 'claimed') or 0)
    local cursor = call('HGET', ns .. 'meta', 'ranks:' .. where) or '0'
    local scan = call('HSCAN', ranks, cursor, 'COUNT', 500)
    for i = 1, #scan[2], 2 do
      if scan[2][i] ~= 'claimed' and tonumber(scan[2][i + 1]) <= clock_rank then call('HDEL', ranks, scan[2][i]) end
    end
    if scan[1] == '0' then
      call('HDEL', ns .. 'meta', 'ranks:' .. where)
    else
      call('HSET', ns .. 'meta', 'ranks:' .. where, scan[1])
    end
  end
end

local function sweep()
  math.randomseed(arg.seed)
  evict()
  done.unparked = unpark_due(arg.budget)
  flush()
  expire()
  mark_overdue()
  settle_rest()
  let_go()
  retain()
  drop_expired()
  recount()
  drop_stale_ranks()
  for _, name in ipairs({'unparked', 'expired', 'overdue', 'settled', 'forgotten'}) do
    done.more = done.more or done[name] >= arg.budget
  end
  return cmsgpack.pack(done)
end
