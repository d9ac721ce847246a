-- load: whole things as they are; those that are there already are left. How many were not.
--
-- Tasks come as the fields of records (lib), without seq and rank, and with them body, steps (step:<id>),
-- signals (inbox:<id>) and reservation (unique:<key>); edges, gauges, records (rec:<kind>, kinds, expires) and
-- events (log) like those that the other scripts write. meta: loaded, the last event that was loaded.

local LOADS = {}

function LOADS.record(r)
  local raw = cmsgpack.pack({r.value, r.version, r.expires_at or false})
  if call('HSETNX', ns .. 'rec:' .. r.kind, r.key, raw) == 0 then return 0 end
  call('SADD', ns .. 'kinds', r.kind)
  if r.expires_at then call('ZADD', ns .. 'expires', r.expires_at, r.kind .. '\31' .. r.key) end
  if r.kind == 'limit' then definitions = {} end
  return 1
end

function LOADS.gauge(g)
  if call('EXISTS', ns .. 'gauge:' .. g.key) == 1 then return 0 end
  call('SET', ns .. 'gauge:' .. g.key, cmsgpack.pack({g.tat_us, g.paused_until, g.open_until, '', g.buckets}))
  call('SADD', ns .. 'gauges', g.key)
  return 1
end

function LOADS.task(d)
  if load(d.id) then return 0 end
  local t = record(d.head, d.id, call('INCR', ns .. 'seq'), d.cut, false, '', d.rest)
  if t.state == 'pending' and not t.parked then
    t.rank = rank_of(t.queue, t.lane, t.fair_key, t.run_at)
  end
  tasks[t.id] = t
  touch(t)
  set_body(t, d.body)
  index(t, function(name) call('ZADD', name, t.seq, t.id) end)
  for n, step in ipairs(d.steps) do
    call('HSET', ns .. 'step:' .. t.id, step[1], cmsgpack.pack({n - 1, step[2], step[3]}))
  end
  for _, signal in ipairs(d.signals) do call('RPUSH', ns .. 'inbox:' .. t.id, cmsgpack.pack(signal)) end
  if d.reserve then reserve(t.unique_key, t.id, d.unique_until, d.digest) end
  if t.parked and t.parked:sub(1, 6) == 'limit:' then add_line(t.parked:sub(7), t.queue, t.lane, now) end
  topics['queue:' .. t.queue] = true
  return 1
end

function LOADS.edge(e)
  local up, down = load(e[1]), load(e[2])
  if not up or not down or call('HEXISTS', ns .. 'up:' .. e[2], e[1]) == 1 then return 0 end
  set_edge(e[1], down, e[3] == 1)
  if e[3] ~= 1 and FINAL[up.state] then call('SADD', ns .. 'unsettled', e[1]) end -- not everybody was told
  down.edges = true
  touch(down)
  return 1
end

-- Cursors of the source are of one length, or numbers: the longer, then the greater one is later.
function LOADS.event(e)
  local last = call('HGET', ns .. 'meta', 'loaded') or ''
  if #e.cursor < #last or (#e.cursor == #last and e.cursor <= last) then return 0 end
  local t = e.task_id and load(e.task_id) or nil
  write_event(e.kind, e.data, t, e.session_id, e.workflow_id, e.at, e.attempt)
  call('HSET', ns .. 'meta', 'loaded', e.cursor)
  return 1
end

local function load_items()
  local loaded = 0
  for _, item in ipairs(arg) do loaded = loaded + LOADS[item[1]](item[2]) end
  return loaded
end
