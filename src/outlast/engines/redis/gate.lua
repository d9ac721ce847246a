-- Limits: core/limits.py, line by line. All of it is integers below 2^53, which doubles hold.
--
--   rec:limit            hash: the definitions, records of kind limit
--   gauge:<key>          string: tat_us, paused_until, open_until, probe, buckets
--   hold:<key>           set: the tasks whose leases hold a slot, so `used` is its size
--   gauges               set: the keys that have a gauge or a line
--   lines:<lane>:<queue> zset by open_at: the keys that somebody waits for there; +inf: until a slot is freed
--   line:<key>           set of "<lane>:<queue>": where somebody waits for the key

local MAX_DEBT, BUCKETS = 1000, 6
local DAY_MS, MONTH_MS = 86400000, 2678400000

local definitions = {}  -- key -> the definition that applies to it, or false
local gauges = {}       -- key -> its gauge
local opened = {}       -- keys whose lines were opened by this step
local there = {}        -- lines key .. key -> is there a line?

local function decode_limit(raw)
  local limit = cjson.decode(raw)
  for _, name in ipairs({'slots', 'trip', 'cap', 'rate_units', 'rate_period_ms'}) do
    if limit[name] == cjson.null then limit[name] = nil end
  end
  limit.rate_units, limit.rate_period_ms = limit.rate_units or 0, limit.rate_period_ms or 0
  return limit
end

-- Its own definition, else that of the longest family.
local function limit_of(key)
  if definitions[key] == nil then
    local names, rest = {key}, key:match('^(.*):[^:]*$')
    while rest do
      names[#names + 1] = rest .. ':*'
      rest = rest:match('^(.*):[^:]*$')
    end
    definitions[key] = false
    for _, raw in ipairs(call('HMGET', ns .. 'rec:limit', unpack(names))) do
      if raw then
        definitions[key] = decode_limit(cmsgpack.unpack(raw)[1])
        break
      end
    end
  end
  return definitions[key]
end

local function gauge_of(key)
  local g = gauges[key]
  if not g then
    local raw = call('GET', ns .. 'gauge:' .. key)
    local f = raw and cmsgpack.unpack(raw) or {0, 0, 0, '', {}}
    g = {key = key, raw = raw, tat_us = f[1], paused_until = f[2], open_until = f[3], probe = f[4],
         buckets = f[5], used = call('SCARD', ns .. 'hold:' .. key)}
    gauges[key] = g
  end
  return g
end

local function write_gauges()
  for key, g in pairs(gauges) do
    local raw = cmsgpack.pack({g.tat_us, g.paused_until, g.open_until, g.probe, g.buckets})
    if raw ~= g.raw then
      call('SET', ns .. 'gauge:' .. key, raw)
      if not g.raw then call('SADD', ns .. 'gauges', key) end
      g.raw = raw
    end
  end
end

local function circuit(limit, g)
  if not limit or not limit.trip or g.open_until == 0 then return 'closed' end
  return now < g.open_until and 'open' or 'half_open'
end

-- us that units take to refill, rounded up: ceil(units * period / rate) without that product.
local function cost_us(limit, units)
  local period_us, rate = limit.rate_period_ms * 1000, limit.rate_units
  units = math.min(units, MAX_DEBT * rate)
  local whole, part = math.floor(units / rate), units % rate
  local each_us, rest = math.floor(period_us / rate), period_us % rate
  local rest_us = math.floor((part * rest + rate - 1) / rate)
  return whole * period_us + part * each_us + rest_us
end

local function month_start(at)
  local floor, day = math.floor, math.floor(at / DAY_MS)
  local of_era = (day + 719468) % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local month = floor((5 * of_year + 2) / 153)
  return (day - of_year + floor((153 * month + 2) / 5)) * DAY_MS
end

-- Where the span of a cap began, and where the next one does; 0 is never.
local function span_of(cap)
  if cap.span_ms == 0 then return 0, 0 end
  if cap.span_ms == MONTH_MS then
    local start = month_start(now)
    return start, month_start(start + MONTH_MS)
  end
  local start = now - now % cap.span_ms
  return start, start + cap.span_ms
end

local function used_of(cap, g)
  local last = g.buckets[1]
  return last and last[1] >= span_of(cap) and last[2] or 0
end

-- 0: may pass now. A time: look again then. nil: only a freed slot or the probe can open it.
local function admit(limit, g, units)
  local open_at = g.paused_until
  if not limit then return open_at > now and open_at or 0 end
  local state = circuit(limit, g)
  if state == 'open' then open_at = math.max(open_at, g.open_until) end
  local spent = limit.cap and used_of(limit.cap, g) >= limit.cap.units
  if spent then
    local _, ends = span_of(limit.cap)
    open_at = math.max(open_at, ends)
  end
  if limit.rate_units > 0 then
    local cost = cost_us(limit, math.min(units, limit.rate_units))
    local passes_us = math.max(g.tat_us, now * 1000) + cost - limit.rate_period_ms * 1000
    open_at = math.max(open_at, math.floor((passes_us + 999) / 1000))
  end
  if open_at > now then return open_at end
  if spent or (state == 'half_open' and g.probe ~= '') then return nil end
  if limit.slots and g.used >= limit.slots then return nil end
  return 0
end

local function spend(limit, g, units)
  if not limit or units <= 0 then return end
  if limit.cap then
    local start = span_of(limit.cap)
    g.buckets = {{start, math.min(used_of(limit.cap, g) + units, 2 ^ 53 - 1), 0}}
  end
  if limit.rate_units == 0 then return end
  local ceiling_us = now * 1000 + MAX_DEBT * limit.rate_period_ms * 1000
  g.tat_us = math.min(math.max(g.tat_us, now * 1000) + cost_us(limit, units), ceiling_us)
end

local function take(limit, g, id, units)
  g.used = g.used + call('SADD', ns .. 'hold:' .. g.key, id)
  if circuit(limit, g) == 'half_open' then g.probe = id end
  spend(limit, g, units)
end

local function free_gauge(g, id)
  g.used = g.used - call('SREM', ns .. 'hold:' .. g.key, id)
  if g.probe == id then g.probe = '' end
end

-- Count a verdict on the service; tells when the circuit turned.
local function charge(limit, g, id, ok)
  if not limit or not limit.trip then return nil end
  local trip = limit.trip
  if g.open_until ~= 0 then
    if g.probe ~= id then return nil end
    g.probe = ''
    g.open_until = ok and 0 or now + trip.open_ms
    return ok and 'closed' or 'open'
  end
  local width = math.floor(trip.window_ms / BUCKETS)
  local start = now - now % width
  if #g.buckets > 0 then start = math.max(start, g.buckets[#g.buckets][1]) end
  local kept = {}
  for _, b in ipairs(g.buckets) do
    if b[1] > start - BUCKETS * width then kept[#kept + 1] = b end
  end
  if #kept == 0 or kept[#kept][1] ~= start then kept[#kept + 1] = {start, 0, 0} end
  g.buckets = kept
  local last = kept[#kept]
  if ok then last[2] = last[2] + 1 else last[3] = last[3] + 1 end
  local failed, total = 0, 0
  for _, b in ipairs(kept) do
    failed, total = failed + b[3], total + b[2] + b[3]
  end
  if total < trip.volume or failed * 1000 < trip.permille * total then return nil end
  g.open_until, g.buckets = now + trip.open_ms, {}
  return 'open'
end

-- lines ----------------------------------------------------------------------------------------------

local function lines_key(queue, lane)
  return ns .. 'lines:' .. lane .. ':' .. queue
end

local function line_there(key, queue, lane)
  local lines = lines_key(queue, lane)
  local name = lines .. '\31' .. key
  if there[name] == nil then there[name] = call('ZSCORE', lines, key) and true or false end
  return there[name]
end

local function add_line(key, queue, lane, open_at)
  local lines = lines_key(queue, lane)
  call('ZADD', lines, 'NX', open_at or '+inf', key)
  call('SADD', ns .. 'line:' .. key, lane .. ':' .. queue)
  call('SADD', ns .. 'gauges', key)
  there[lines .. '\31' .. key] = true
end

local function close_line(key, queue, lane, open_at)
  call('ZADD', lines_key(queue, lane), 'XX', open_at or '+inf', key)
end

local function drop_line(key, queue, lane)
  local lines = lines_key(queue, lane)
  call('ZREM', lines, key)
  call('SREM', ns .. 'line:' .. key, lane .. ':' .. queue)
  there[lines .. '\31' .. key] = false
end

-- Somebody may pass here again: let the next claims look at the waiters.
local function open_key(key)
  if opened[key] then return end
  opened[key] = true
  for _, where in ipairs(call('SMEMBERS', ns .. 'line:' .. key)) do
    local lane, queue = where:match('^(%a+):(.*)$')
    local lines = ns .. 'lines:' .. where
    local score = call('ZSCORE', lines, key)
    if score and (score == 'inf' or tonumber(score) > now) then
      call('ZADD', lines, 'XX', now, key)
      topics['queue:' .. queue] = true
    end
  end
end

-- A definition was written or has gone: every line it governs is looked at, a changed rate starts afresh.
local function limit_changed(key, before)
  local old = before and decode_limit(before) or {rate_units = 0, rate_period_ms = 0}
  definitions = {}
  local family = key:sub(-2) == ':*' and key:sub(1, -2) or nil
  for _, other in ipairs(call('SMEMBERS', ns .. 'gauges')) do
    if other == key or (family and other:sub(1, #family) == family) then
      local g, new = gauge_of(other), limit_of(other) or {rate_units = 0, rate_period_ms = 0}
      if old.rate_units ~= new.rate_units or old.rate_period_ms ~= new.rate_period_ms then g.tat_us = 0 end
      if not new.trip then g.open_until = 0 end
      open_key(other)
    end
  end
end

-- ranks ----------------------------------------------------------------------------------------------
--   fair:<lane>:<queue>  hash: "k<key>" -> the key's next rank, "claimed" -> the rank claimed last
--   fairs                set of "<lane>:<queue>"

-- Where a task that becomes ready stands: its due time, or a virtual time per key.
local function rank_of(queue, lane, fair_key, due)
  if not fair_key then return math.max(due, 0) end
  local ranks = ns .. 'fair:' .. lane .. ':' .. queue
  local found = call('HMGET', ranks, 'k' .. fair_key, 'claimed')
  local rank = math.max(tonumber(found[1] or 0), tonumber(found[2] or 0))
  call('HSET', ranks, 'k' .. fair_key, rank + 1)
  call('SADD', ns .. 'fairs', lane .. ':' .. queue)
  return rank
end

-- The virtual clock of a fair queue: newcomers start where claiming is.
local function claimed(t)
  local ranks = ns .. 'fair:' .. t.lane .. ':' .. t.queue
  if t.rank > tonumber(call('HGET', ranks, 'claimed') or 0) then
    call('HSET', ranks, 'claimed', t.rank)
  end
end
