-- Outlast on SQLite, schema version 1.
--
-- task         one row per task, small: it is rewritten at claim and at the end
-- body         payload and meta, apart: a row that is rewritten must not carry a megabyte along
-- label        tags and searchable attributes
-- edge         up must end before down may run; done once told
-- unsettled    ended tasks with dependents that have not been told yet
-- signal       the inboxes; step: the remembered parts of handlers
-- event        the log; its rowid is the cursor (one writer at a time: rowid order = commit order)
-- reservation  unique keys: who holds them and until when (null: while the task lives)
-- gauge        the state of a limit key; line: (key, queue, lane) with tasks parked on the key.
--              open_at: from when on a claim may look at them; null: not before a slot is freed
-- fair         virtual times: the next rank of a key, and (key is null) the rank claimed last
-- worker       leases of workers, in monotonic time of one boot: a sleeping laptop loses nothing
-- record       small versioned documents; meta: what the engine remembers about itself

create table meta (name text primary key, value any) strict, without rowid;

create table task (
  seq              integer primary key,
  id               text not null unique,
  type             text not null,
  queue            text not null,
  lane             text not null,
  priority         integer not null,
  rank             integer not null,
  state            text not null,
  parked           text,
  wake_at          integer,
  awaits           integer not null,
  needs            text not null,
  hold             text,
  fence            integer,
  last_fence       integer,
  worker           text,
  attempt          integer not null,
  number           integer not null,
  max_attempts     integer not null,
  losses           integer not null,
  max_losses       integer not null,
  timeout_ms       integer,
  overdue_after_ms integer,
  overdue_at       integer,
  overdue          integer not null,
  max_age_ms       integer,
  expires_at       integer,
  run_at           integer not null,
  created_at       integer not null,
  started_at       integer,
  updated_at       integer not null,
  completed_at     integer,
  limits           text,
  fair_key         text,
  cancel           text,
  session_id       text,
  user_id          text,
  parent_id        text,
  workflow_id      text,
  unique_key       text,
  tags             text,
  followed         integer not null,
  streamed         integer not null,
  dependents       integer not null,
  steps            integer not null,
  inbox            integer not null,
  version          integer not null,
  reason           text,
  fingerprint      text,
  progress         text,
  attempts         text,
  error            text,
  result           blob
) strict;

create index task_ready on task (queue, lane, priority, rank, id)
  where state = 'pending' and parked is null;
create index task_waiting on task (parked, queue, lane, priority, rank, id)
  where state = 'pending' and parked is not null;
create index task_wake on task (wake_at) where wake_at is not null;
create index task_running on task (worker) where state = 'running';
create index task_cancel on task (worker) where state = 'running' and cancel is not null;
create index task_finished on task (state, completed_at) where completed_at is not null;
create index task_expires on task (expires_at) where state = 'pending' and expires_at is not null;
create index task_overdue on task (overdue_at) where overdue = 0 and overdue_at is not null;
create index task_type on task (type);
create index task_session on task (session_id) where session_id is not null;
create index task_user on task (user_id) where user_id is not null;
create index task_parent on task (parent_id) where parent_id is not null;
create index task_workflow on task (workflow_id) where workflow_id is not null;

create table body (seq integer primary key, payload blob not null, meta blob not null) strict;

create table label (
  name text not null, value text not null, seq integer not null, primary key (name, value, seq)
) strict, without rowid;
create index label_task on label (seq);

create table edge (
  up integer not null, down integer not null, done integer not null, primary key (up, down)
) strict, without rowid;
create index edge_down on edge (down);

create table unsettled (seq integer primary key) strict;

create table signal (
  task integer not null, n integer not null, name text not null, data blob not null,
  at integer not null, primary key (task, n)
) strict, without rowid;

create table step (
  task integer not null, key text not null, value blob not null, at integer not null,
  n integer not null, primary key (task, key)
) strict, without rowid;

create table event (
  seq integer primary key autoincrement,
  task integer,
  kind text not null,
  attempt integer not null,
  at integer not null,
  session_id text,
  workflow_id text,
  data blob not null
) strict;
create index event_task on event (task) where task is not null;
create index event_session on event (session_id) where session_id is not null;
create index event_workflow on event (workflow_id) where workflow_id is not null;

create table reservation (
  key text primary key, task_id text not null, until integer, digest text
) strict, without rowid;
create index reservation_until on reservation (until) where until is not null;

create table gauge (
  key text primary key,
  used integer not null,
  tat_us integer not null,
  paused_until integer not null,
  open_until integer not null,
  probe text not null,
  buckets text not null
) strict, without rowid;

create table line (
  key text not null, queue text not null, lane text not null, open_at integer,
  primary key (key, queue, lane)
) strict, without rowid;
create index line_open on line (queue, lane, open_at) where open_at is not null;

create table fair (
  queue text not null, lane text not null, key text, rank integer not null
) strict;
create unique index fair_key on fair (queue, lane, ifnull(key, char(0)));

create table worker (
  id text primary key,
  info blob not null,
  seen_at integer not null,
  lease_until integer not null,
  lease_mono integer not null,
  boot text not null,
  evicted integer not null,
  tokens text not null
) strict, without rowid;

create table record (
  kind text not null, key text not null, value blob not null, version integer not null,
  expires_at integer, primary key (kind, key)
) strict, without rowid;
create index record_expires on record (expires_at) where expires_at is not null;

-- What a change of state needs to know about a task; the fields of Held in tx.py, in order.
create view held as
select seq, id, type, queue, lane, priority, run_at, state, parked, fence, last_fence, worker, attempt,
  number, losses, max_losses, started_at, limits, fair_key, cancel, session_id, workflow_id, unique_key,
  followed, streamed, dependents, inbox, hold, awaits, needs, attempts, created_at, steps
from task;
