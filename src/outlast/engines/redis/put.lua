-- put: compare-and-set of small documents, each as a step of its own. A limit's change opens its lines.
--
--   rec:<kind>           hash: key -> {value, version, expires_at or false}
--   kinds                set: the kinds there are
--   expires              zset by expires_at of "<kind>\31<key>". (No TTL of the server's: it knows no skew.)

-- {version, expires_at or false}, or false where the version was another or the record was deleted.
local function put_one(p)
  local records = ns .. 'rec:' .. p.kind
  local raw = call('HGET', records, p.key)
  local old = raw and cmsgpack.unpack(raw)
  local expired = old and old[3] and old[3] <= now
  local version = (old and not expired) and old[2] or 0
  if p.expect and p.expect ~= version then return false end
  local written = false
  if p.value then
    -- The version goes on counting over a deletion by time, so that an old reader still loses.
    written = {(old and old[2] or 0) + 1, p.ttl_ms and now + p.ttl_ms or false}
    call('HSET', records, p.key, cmsgpack.pack({p.value, written[1], written[2]}))
    call('SADD', ns .. 'kinds', p.kind)
  else
    call('HDEL', records, p.key)
  end
  if written and written[2] then
    call('ZADD', ns .. 'expires', written[2], p.kind .. '\31' .. p.key)
  elseif old and old[3] then
    call('ZREM', ns .. 'expires', p.kind .. '\31' .. p.key)
  end
  if p.kind == 'limit' and p.value ~= (old and old[1] or nil) then limit_changed(p.key, old and old[1]) end
  if p.kind == 'queue' then topics['queue:' .. p.key] = true end
  return written
end

local function put()
  local answers = {}
  for i, p in ipairs(arg) do
    answers[i] = put_one(p)
    opened = {}
  end
  return cmsgpack.pack(answers)
end
