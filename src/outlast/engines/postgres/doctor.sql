-- What `outlast doctor` asks a server.

-- name: facts
select current_setting('server_version_num')::integer, current_setting('server_version'),
  current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
  current_setting('autovacuum'), current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer,
  (select count(*) from pg_stat_activity where backend_type = 'client backend'),
  pg_backend_pid()

-- name: held
select who, held_s::integer, cure from (
  select format('Backend %s (%s, %s)', pid, coalesce(nullif(application_name, ''), usename), state) as who,
    extract(epoch from now() - xact_start) as held_s,
    format('select pg_terminate_backend(%s);', pid) as cure
  from pg_stat_activity
  where backend_type = 'client backend' and (backend_xmin is not null or backend_xid is not null)
    and pid <> pg_backend_pid()
  union all
  select format('The prepared transaction %L', gid), extract(epoch from now() - prepared),
    format('rollback prepared %L;', gid)
  from pg_prepared_xacts where database = current_database()
) held where held_s > $1::integer order by held_s desc limit 1

-- name: dead
select relname, n_dead_tup, n_live_tup from pg_stat_user_tables
where schemaname = $1 and n_dead_tup > greatest($2::bigint, n_live_tup) order by n_dead_tup desc limit 1

-- name: lacking
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relkind in ('r', 'p') and not (
  has_table_privilege(c.oid, 'SELECT') and has_table_privilege(c.oid, 'INSERT')
  and has_table_privilege(c.oid, 'UPDATE') and has_table_privilege(c.oid, 'DELETE')
) order by 1 limit 1
