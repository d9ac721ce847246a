-- Outlast on PostgreSQL, schema version 1. `outlast.` is replaced by the schema that was asked for.
--
-- task         one row per task; a payload of more than 2 kB is in TOAST and is not copied by updates
-- label        tags and searchable attributes
-- edge         up must end before down may run; done once told
-- unsettled    ended tasks with dependents that have not been told yet
-- signal       the inboxes; step: the remembered parts of handlers
-- event        the log; its place is seq, drawn under the locks of what it tells about. A sequence is
--              not in the order of commits: readers of everything stay below `horizon()`. The first
--              event of a followed task is in its row (seq, and born: its status then), because an
--              event of its own costs half as much as the task (birth); log is both
-- reservation  unique keys: who holds them and until when (null: while the task lives)
-- definition   the records of kind `limit`, as columns
-- gauge        the state of a limit key; line: (key, queue, lane) with tasks parked on the key.
--              open_at: from when on a claim may look at them; null: not before a slot is freed
-- fair         virtual times: the next rank of a key, and (key is '') the rank claimed last
-- worker       leases of workers
-- record       small versioned documents; meta: what the engine remembers about itself
--
-- Locks, in this order, by everybody: worker row; task rows by id; reservations by key; ranks; the
-- definitions as a whole (shared by who uses them); gauges by key, in one pass; afterwards only SKIP
-- LOCKED. Lines change under their gauge's lock. What was read before a wait is read again after it.

create table outlast.meta (name text primary key, value text not null);

create table outlast.event (
  seq         bigint generated always as identity primary key,
  at          bigint not null,
  task        uuid,
  attempt     integer not null,
  kind        text not null,
  session_id  text,
  workflow_id text,
  data        bytea not null
);
create index event_task on outlast.event (task, seq) where task is not null;
create index event_session on outlast.event (session_id, seq) where session_id is not null;
create index event_workflow on outlast.event (workflow_id, seq) where workflow_id is not null;

create table outlast.task (
  id               uuid primary key,
  seq              bigint not null default nextval('outlast.event_seq_seq'),
  run_at           bigint not null,
  rank             bigint not null,
  created_at       bigint not null,
  updated_at       bigint not null,
  started_at       bigint,
  completed_at     bigint,
  wake_at          bigint,
  fence            bigint,
  last_fence       bigint,
  timeout_ms       bigint,
  overdue_after_ms bigint,
  overdue_at       bigint,
  max_age_ms       bigint,
  expires_at       bigint,
  priority         integer not null,
  awaits           integer not null default 0,
  attempt          integer not null default 0,
  number           integer not null default 0,
  max_attempts     integer not null,
  losses           integer not null default 0,
  max_losses       integer not null,
  version          integer not null default 1,
  overdue          boolean not null default false,
  followed         boolean not null,
  streamed         boolean not null default false,
  dependents       boolean not null default false,
  steps            boolean not null default false,
  inbox            boolean not null default false,
  state            text not null default 'pending',
  lane             text not null,
  needs            text not null,
  type             text not null,
  queue            text not null,
  parked           text,
  hold             text,
  born             text,
  worker           text,
  cancel           text,
  reason           text,
  fair_key         text,
  session_id       text,
  user_id          text,
  parent_id        text,
  workflow_id      text,
  unique_key       text,
  fingerprint      text,
  limits           text[],
  units            bigint[],
  tags             text[],
  attempts         text,
  progress         bytea,
  error            bytea,
  result           bytea,
  meta             bytea not null,
  payload          bytea not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index task_seq on outlast.task (seq);
create index task_ready on outlast.task (queue, lane, priority, rank, id)
  where state = 'pending' and parked is null;
create index task_waiting on outlast.task (parked, queue, lane, priority, rank, id)
  where parked is not null and state = 'pending';
create index task_wake on outlast.task (wake_at) where wake_at is not null;
create index task_running on outlast.task (worker) where state = 'running';
create index task_cancel on outlast.task (worker) where cancel is not null and state = 'running';
create index task_finished on outlast.task (state, completed_at) where completed_at is not null;
create index task_expires on outlast.task (expires_at)
  where expires_at is not null and state = 'pending';
create index task_overdue on outlast.task (overdue_at) where overdue_at is not null and not overdue;
create index task_session on outlast.task (session_id, seq) where session_id is not null;
create index task_user on outlast.task (user_id) where user_id is not null;
create index task_parent on outlast.task (parent_id) where parent_id is not null;
create index task_workflow on outlast.task (workflow_id, seq) where workflow_id is not null;

create view outlast.birth as
select seq, created_at as at, id as task, 0 as attempt, 'state' as kind, session_id, workflow_id,
  convert_to('{"status":"' || born || '"}', 'UTF8') as data
from outlast.task where born is not null;

create view outlast.log as table outlast.event union all table outlast.birth;

create table outlast.label (
  name text not null, value text not null, task uuid not null, primary key (name, value, task)
);
create index label_task on outlast.label (task);

create table outlast.edge (
  up uuid not null, down uuid not null, done boolean not null, primary key (up, down)
);
create index edge_down on outlast.edge (down);

create table outlast.unsettled (task uuid primary key);

create table outlast.signal (
  task uuid not null, n integer not null, name text not null, data bytea not null,
  at bigint not null, primary key (task, n)
);

create table outlast.step (
  task uuid not null, key text not null, value bytea not null, at bigint not null,
  n integer not null, primary key (task, key)
);

create table outlast.reservation (
  key text primary key, task uuid not null, until bigint, digest text
);
create index reservation_until on outlast.reservation (until) where until is not null;

create table outlast.definition (
  key            text primary key,
  slots          bigint,
  rate_units     bigint not null,
  rate_period_ms bigint not null,
  permille       bigint,
  volume         bigint,
  window_ms      bigint,
  open_ms        bigint
);

create table outlast.gauge (
  key          text primary key,
  used         bigint not null default 0,
  tat_us       bigint not null default 0,
  paused_until bigint not null default 0,
  open_until   bigint not null default 0,
  probe        text not null default '',
  buckets      bigint[] not null default '{}'
) with (fillfactor = 50);

create table outlast.line (
  key text not null, queue text not null, lane text not null, open_at bigint,
  primary key (key, queue, lane)
) with (fillfactor = 50);
create index line_lane on outlast.line (queue, lane);

create table outlast.fair (
  queue text not null, lane text not null, key text not null, rank bigint not null,
  primary key (queue, lane, key)
) with (fillfactor = 50);

create table outlast.worker (
  id          text primary key,
  info        bytea not null,
  seen_at     bigint not null,
  lease_until bigint not null,
  evicted     boolean not null default false,
  tokens      bigint[] not null
) with (fillfactor = 50);

create table outlast.record (
  kind text not null, key text not null, value bytea not null, version integer not null,
  expires_at bigint, primary key (kind, key)
);
create index record_expires on outlast.record (expires_at) where expires_at is not null;

-- A gauge under its lock, with the definition that applies to it and what a step has found out.
create type outlast.gate as (
  key            text,
  used           bigint,
  tat_us         bigint,
  paused_until   bigint,
  open_until     bigint,
  probe          text,
  buckets        bigint[],   -- start, ok, failed, start, ok, failed, …
  defined        boolean,
  slots          bigint,
  rate_units     bigint,
  rate_period_ms bigint,
  permille       bigint,     -- null: volume and window_ms are a cap, its units and its span
  volume         bigint,
  window_ms      bigint,
  open_ms        bigint,
  changed        boolean,
  opened         boolean,    -- somebody may pass again: let the lines be looked at
  refused        boolean,
  refused_at     bigint
);

-- One who may be next: ready (waits is null), or waiting in a line that is open. row: its place in
-- the table, which is sure while it is locked.
create type outlast.candidate as (
  id uuid, priority integer, rank bigint, limits text[], units bigint[], waits text, row tid,
  fair boolean
);

insert into outlast.meta values ('pruned', '0');
