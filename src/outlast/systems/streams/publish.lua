-- Adds an event to a stream, once: a publisher that is not sure whether it has may come again.
-- KEYS: the stream, the mark of the event.
-- ARGV: how long the stream keeps events (ms), "1" if the stream goes when it is that old, fields.
local keep = tonumber(ARGV[1])
if redis.call("EXISTS", KEYS[2]) == 1 then
  return false
end
local id = redis.call("XADD", KEYS[1], "*", unpack(ARGV, 3)) -- may be refused: the mark comes after
redis.call("SET", KEYS[2], "1", "PX", keep)
local now = redis.call("TIME")
redis.call("XTRIM", KEYS[1], "MINID", now[1] * 1000 + math.floor(now[2] / 1000) - keep)
if ARGV[2] == "1" then
  redis.call("PEXPIRE", KEYS[1], keep)
end
return id
