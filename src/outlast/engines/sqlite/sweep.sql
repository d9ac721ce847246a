-- Statements of sweep: each pass is bounded and safe to repeat.

-- name: lapsed
select id from worker where evicted = 1 or boot <> ? or lease_mono <= ? limit ?

-- name: evict
update worker set evicted = 1 where id = ?

-- name: expired
select h.* from task t join held h on h.seq = t.seq
where t.state = 'pending' and t.expires_at <= ? order by t.expires_at limit ?

-- name: overdue
update task set overdue = 1, version = version + 1
where seq in (
  select seq from task where overdue = 0 and overdue_at <= ? order by overdue_at limit ?
)
returning seq, state

-- name: unsettled
select u.seq, t.state from unsettled u join task t on t.seq = u.seq limit ?

-- name: settled
delete from unsettled where seq = ?

-- name: old
select h.* from task t join held h on h.seq = t.seq
where t.state = ? and t.completed_at is not null and t.completed_at < ?
  and not exists (select 1 from reservation r where r.key = t.unique_key and r.until > ?)
order by t.completed_at limit ?

-- name: beyond
select h.* from task t join held h on h.seq = t.seq
where t.state = ? and t.completed_at is not null
  and not exists (select 1 from reservation r where r.key = t.unique_key and r.until > ?)
order by t.completed_at desc limit ? offset ?

-- name: heavy
select seq, length(ifnull(result, '')) + (select length(payload) from body b where b.seq = t.seq)
from task t where state = ? and completed_at is not null
  and not exists (select 1 from reservation r where r.key = t.unique_key and r.until > ?)
order by completed_at desc

-- name: old_records
delete from record where (kind, key) in (
  select kind, key from record where expires_at <= ? order by expires_at limit ?
)
returning kind, key, value

-- name: old_reservations
delete from reservation where key in (
  select key from reservation where until <= ? order by until limit ?
)

-- name: old_events
select max(seq) from (select seq from event where at < ? order by seq limit ?)

-- name: drop_events
delete from event where seq <= ?

-- name: events_pruned
update meta set value = max(value, ?) where name = 'pruned'

-- name: gauges_used
select key from gauge where used > 0 or probe <> '' order by key

-- name: leases_with_limits
select id, limits from task where state = 'running' and limits is not null

-- name: idle_gauges
delete from gauge where key in (
  select key from gauge g where used = 0 and probe = '' and open_until = 0
    and (buckets = '[]' or buckets ->> '$[#-1][0]' between 1 and ?)
    and tat_us <= ? and paused_until <= ?
    and not exists (select 1 from line l where l.key = g.key) limit ?
)

-- name: stale_fair
delete from fair where key is not null and rank <= (
  select f.rank from fair f where f.queue = fair.queue and f.lane = fair.lane and f.key is null
)
