// Written by `npm run api` from the server's OpenAPI document. Do not edit.

export interface paths {
    "/api/v1/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tasks, newest first
         * @description All filters must hold; several values of one stand apart by commas. A page may be short
         *     and still have a `next`.
         */
        get: operations["tasks_list_tasks"];
        put?: never;
        /**
         * Enqueue a task
         * @description Answers when the task is stored, as durably as `durability` says; it runs when a worker
         *     is free. With an `Idempotency-Key` the request may be repeated safely.
         */
        post: operations["tasks_enqueue"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/summarize": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Enqueue a summary
         * @description The type `summarize` with `content` as its payload.
         */
        post: operations["tasks_summarize"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Enqueue many tasks in one step
         * @description All of them or none. With an `Idempotency-Key` the batch may be repeated safely: it stands
         *     for each task that has no `unique_key`, by its place; another batch under it is refused.
         */
        post: operations["tasks_enqueue_batch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/bulk": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Retry, cancel or delete all tasks that fit a filter, as a task with progress
         * @description `filter` is a line of the filter language. With `dry_run` it only counts. Otherwise a task
         *     is enqueued that does it: follow that one for its progress.
         */
        post: operations["tasks_bulk"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/requeue-orphaned": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Recover the tasks of lost workers now
         * @description Workers do this by themselves every second; this does not wait for them.
         */
        post: operations["tasks_requeue_orphaned"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Look at a task
         * @description With `Prefer: wait=20` the answer comes when the task ends, or when the time is over:
         *     look at `state`.
         */
        get: operations["tasks_get_task"];
        put?: never;
        post?: never;
        /**
         * Forget a task that does not run
         * @description With its history, steps and events. One that runs has to be cancelled first.
         */
        delete: operations["tasks_forget"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/why": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Why does it not run? Where did its time go?
         * @description The one thing that a task waits for, an estimate, and the action that would change it;
         *     for a task that is over, where its time went.
         */
        get: operations["tasks_get_why"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Run a task again that is dead, cancelled or retrying
         * @description Its history stays, its budgets are fresh. A task that waits for a retry runs now.
         */
        post: operations["tasks_retry"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What a task remembers, and the signals it was sent
         * @description Its steps, waits, calls and sleeps in the order in which they were stored, each by the name
         *     from which the task can be run again.
         */
        get: operations["tasks_get_steps"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/rerun": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Run a task that is over again, as a new one
         * @description From `from_step`, with what the task remembered before that; `steps` gives others of those
         *     results, `payload` other arguments. What is `***` in them stays what it was.
         */
        post: operations["tasks_rerun"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a task
         * @description At once if it waits; a running attempt is told within about a second.
         */
        post: operations["tasks_cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/signal/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a signal to a task; the body is its data
         * @description It is kept until the task waits for it: a signal may come first.
         */
        post: operations["tasks_signal"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workflows": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List workflows, newest first
         * @description Each with its status, and how many of its tasks are how far. A page may be short and still
         *     have a `next`.
         */
        get: operations["workflows_list_workflows"];
        put?: never;
        /**
         * Enqueue a workflow: a graph of tasks
         * @description All of it or nothing. `{"$from": "node", "path": "words.0"}` stands for the result of another
         *     node, or a part of it, wherever a value may stand; it makes an edge, as `after` does without
         *     data. Options beside `nodes` are those of all tasks. With an `Idempotency-Key` the request may
         *     be repeated safely.
         */
        post: operations["workflows_enqueue"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workflows/{workflow_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Look at a workflow and its graph
         * @description With its nodes, their edges and states, as a graph is drawn; children of a node have it as
         *     their `parent_id`. `undo` are the tasks that undo it, in their order. Of more than 2,000 nodes
         *     the newest are there, and `truncated` is true; `/tasks?workflow_id=…` lists all.
         */
        get: operations["workflows_get_workflow"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workflows/{workflow_id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a workflow
         * @description What waits or runs is stopped, what was done is undone. With `from` only that node is, and
         *     what comes after it.
         */
        post: operations["workflows_cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workflows/{workflow_id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Take a workflow up again
         * @description It goes on from where it died: what has completed stays. With `from` a new workflow is made,
         *     which the answer is: that node and all that come after it run again, with the results that the
         *     others have.
         */
        post: operations["workflows_retry"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List schedules, with their next firings
         * @description By name, each with how far it is and when it fires next.
         */
        get: operations["schedules_list_schedules"];
        put?: never;
        /**
         * Make a schedule, or replace the one of that name
         * @description `every` is a cron expression in the zone `tz`, or a span; or give `at`, one moment. It stays,
         *     whatever code says, until it is deleted.
         */
        post: operations["schedules_save"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{schedule}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Look at a schedule
         * @description With its next ten firings.
         */
        get: operations["schedules_get_schedule"];
        put?: never;
        post?: never;
        /**
         * Delete a schedule
         * @description What it has enqueued stays. One that code gives comes back when a program with it starts.
         */
        delete: operations["schedules_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{schedule}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fire nothing
         * @description What falls into the pause is not made up for.
         */
        post: operations["schedules_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{schedule}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fire again
         * @description Undoes a pause; the next firing is the next that is due from now.
         */
        post: operations["schedules_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{schedule}/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fire once, now
         * @description One firing out of turn; also while it is paused. The answer is its task.
         */
        post: operations["schedules_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/approvals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List open questions to people
         * @description What tasks ask, with the action they propose and until when they wait, those of the newest
         *     tasks first. The filters are those of tasks.
         */
        get: operations["approvals_list_approvals"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/approvals/{task_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Answer the question of a task
         * @description `answer` is any JSON; the task gets it as `ctx.ask` returns. A task that asks nothing, or
         *     asks no more, is a conflict.
         */
        post: operations["approvals_respond"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow a task: state, progress, chunk, step, rollback, reset, done
         * @description Server-sent events from the first on, or behind the one that is named; the stream ends
         *     behind `done`. 204 when nothing will come any more.
         */
        get: operations["events_stream_task"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task_id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The events of a task so far, or the next ones
         * @description Long poll, for clients that cannot stream: ask again with `after` set to `next`, until
         *     `done` is true.
         */
        get: operations["events_task_events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow all tasks in one stream, from now on unless a cursor is given
         * @description Server-sent events of everything that the caller may see.
         */
        get: operations["events_stream_all"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events/poll": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The events of all tasks behind a cursor, or the next ones
         * @description Long poll of what `/events` streams. Without `after` it begins now: ask again with `after`
         *     set to `next`.
         */
        get: operations["events_poll_all"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Take tasks to work on
         * @description With `wait` the answer comes as soon as there is a task. The same `token` again gives the
         *     same leases again, should a reply get lost.
         */
        post: operations["leases_claim"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Keep a lease, and those taken with it
         * @description Every 3 s: a lease holds for 10 s. Stop when `cancel` is set, and on 409.
         */
        post: operations["leases_heartbeat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/progress": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Tell how far it is
         * @description Shown in the record and sent to whoever follows; a heartbeat, too.
         */
        post: operations["leases_progress"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Tell what was used
         * @description Tokens, money and what else is counted, since it was last told; a heartbeat, too. What is
         *     told with the end instead is counted once, however often that is repeated.
         */
        post: operations["leases_usage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/emit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Put out a chunk of output for whoever follows
         * @description Sent to whoever follows; a heartbeat, too. If the attempt fails, they are told that its
         *     chunks do not count.
         */
        post: operations["leases_emit"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * It is done: here is the result
         * @description May be repeated when the reply was lost. 409: the task is another's now, or over.
         */
        post: operations["leases_complete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/fail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * It failed: again by the policy of its type, or dead
         * @description May be repeated when the reply was lost. 409: the task is another's now, or over.
         */
        post: operations["leases_fail"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/leases/{lease}/release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Give it back, at no cost
         * @description It costs no attempt. One that was asked to stop ends as cancelled.
         */
        post: operations["leases_release"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The tasks of a session, newest first
         * @description With the filters of `/tasks`.
         */
        get: operations["sessions_session_tasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What the session has not acknowledged, oldest first
         * @description At most a page of them; acknowledge these, and ask again while `more` is true.
         */
        get: operations["sessions_notifications"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/notifications/ack": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Acknowledge notifications: each counts once
         * @description Answers those that were not acknowledged before.
         */
        post: operations["sessions_acknowledge"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/preferences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What the session wants to be told
         * @description The defaults, unless it has set others.
         */
        get: operations["sessions_get_preferences"];
        /**
         * Set what the session wants to be told
         * @description Replaces all of them: what is left out is as by default.
         */
        put: operations["sessions_set_preferences"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/ticket": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * A ticket for one socket, for browsers, which cannot send a header with it
         * @description Good for one connection to `/api/v1/sessions/{session_id}/ws?ticket=…`, within half a
         *     minute.
         */
        post: operations["sessions_ticket"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List webhooks, without their secrets
         * @description With the reason why one is disabled, if it is.
         */
        get: operations["webhooks_list_webhooks"];
        put?: never;
        /**
         * Subscribe; the secret is shown this once
         * @description Messages are signed as Standard Webhooks says. Addresses inside private networks are
         *     refused.
         */
        post: operations["webhooks_create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{webhook_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Unsubscribe
         * @description Deliveries that wait are given up when their turn comes.
         */
        delete: operations["webhooks_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{webhook_id}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * A new secret; the old one signs beside it until the next rotation
         * @description Both sign until the next rotation, so that receivers can follow in their time.
         */
        post: operations["webhooks_rotate"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{webhook_id}/enable": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send there again
         * @description One that answered 410 was disabled.
         */
        post: operations["webhooks_enable"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{webhook_id}/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Its deliveries, newest first: each is a task
         * @description With their attempts and errors, and the filters of `/tasks`.
         */
        get: operations["webhooks_deliveries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{webhook_id}/deliveries/{task_id}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a delivery again, under its id
         * @description As a new task; receivers tell by the message's id that they know it.
         */
        post: operations["webhooks_replay"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/queues/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Depths, counts and pressure of the queues
         * @description By lane and by status, for all queues together and for each; with the share of the
         *     retry lane, the age of the oldest task and what was completed in the last minute.
         */
        get: operations["operating_queues_status"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/queues/dlq": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List dead tasks, or the errors they died of
         * @description Dead tasks, newest first, with the filters of `/tasks`; or with `group_by=fingerprint` their
         *     errors, the most frequent first.
         */
        get: operations["operating_dead"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/queues/{name}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Take nothing more from a queue
         * @description What runs goes on. The queue need not exist yet.
         */
        post: operations["operating_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/queues/{name}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Take from a queue again
         * @description Undoes a pause; an open queue stays open.
         */
        post: operations["operating_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List workers
         * @description What they serve, how much they run, and whether they are alive.
         */
        get: operations["operating_workers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker_id}/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a worker end what it runs, and stop
         * @description It takes nothing more, lets attempts end for its grace period, gives back the rest, and
         *     ends. What started it decides whether another one comes in its place.
         */
        post: operations["operating_drain"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List limits and the keys in use
         * @description Definitions by key or family, and the gauges of the keys in use: who holds them, how many
         *     wait, whether the circuit is open.
         */
        get: operations["operating_limits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/limits/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Define a limit, by key or family
         * @description All workers follow within about a second. It stays when a program with another definition
         *     starts, until it is deleted.
         */
        put: operations["operating_set_limit"];
        post?: never;
        /**
         * Delete a limit
         * @description One that code gives comes back as code gives it.
         */
        delete: operations["operating_delete_limit"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/limits/{key}/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Close a circuit, and begin a rate afresh
         * @description For a key in use, or a family. Slots stay with who holds them; a pause that a service asked
         *     for (429) is kept.
         */
        post: operations["operating_reset_limit"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/types": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List task types with their JSON Schemas
         * @description Those that the app has, that it declares external, and that live workers announce.
         */
        get: operations["operating_types"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What was used
         * @description Exact sums of what attempts have reported, those that failed included; days are in UTC.
         *     Sums that know users and sessions are kept for 92 days, the others for 400.
         */
        get: operations["usage_usage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/budgets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List budgets and their use
         * @description Each with what was used of it in the hour, day or month that runs.
         */
        get: operations["usage_list_budgets"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/budgets/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Define a budget
         * @description It counts for tasks that are enqueued from then on; raising one lets those pass that wait
         *     for it. What was used stays used.
         */
        put: operations["usage_set_budget"];
        post?: never;
        /**
         * Delete a budget
         * @description Nobody waits for it any more; one that code gives comes back as code gives it.
         */
        delete: operations["usage_delete_budget"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/metrics/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What happened per hour or day, by type and queue
         * @description Counts, error rates and times, oldest first; what nothing happened to is left out.
         */
        get: operations["operating_task_metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List API keys, without the keys
         * @description Those of `OUTLAST_KEYS` are not among them.
         */
        get: operations["access_list_keys"];
        put?: never;
        /**
         * Make an API key; it is shown this once
         * @description Only its hash is kept. Without queues and types it is for all of them.
         */
        post: operations["access_create_key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/keys/{key_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke an API key
         * @description Other servers follow within seconds; streams that it has opened end.
         */
        delete: operations["access_revoke_key"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Sign a token for an end user: it opens the tasks of this session only
         * @description For your server to hand to a browser. It may enqueue for its session, with the types
         *     given, and see what belongs to it. `priority` is that of its tasks, where their type names
         *     none.
         */
        post: operations["access_create_token"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tickets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * A ticket for one stream or socket, for browsers, which cannot send a header with it
         * @description Good for one connection to this very path, as `path?ticket=…`, within half a minute. To come
         *     back, get another one, and give the last event's id as `after`.
         */
        post: operations["access_create_ticket"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Who am I?
         * @description By cookie, key or token.
         */
        get: operations["access_who_am_i"];
        put?: never;
        /**
         * Log in with a key; a cookie stands for it
         * @description For pages of this server. The cookie ends after 12 hours, or with the key.
         */
        post: operations["access_log_in"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End the login of this browser
         * @description Also when there is none.
         */
        post: operations["access_log_out"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The same under the API's prefix
         * @description Unhealthy (503) when the engine is down; degraded (200) without a worker or with an open
         *     circuit.
         */
        get: operations["health_api_health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Engine, workers and circuits
         * @description Unhealthy (503) when the engine is down; degraded (200) without a worker or with an open
         *     circuit.
         */
        get: operations["health_health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The process answers
         * @description Never asks the engine: restarting this process would not bring it back.
         */
        get: operations["health_livez"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Requests can be served
         * @description 503 while the engine is down or the server is shutting down.
         */
        get: operations["health_readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/content/{content_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Content that a task has stored
         * @description A picture, film or sound, by its id in a result; seen by whoever sees the task.
         */
        get: operations["content_get_content"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Metrics for Prometheus
         * @description Counts, queues, workers, limits, notifications, webhooks and requests, in the text format.
         *
         *     When the engine is down it still answers, with `outlast_engine_up 0`.
         */
        get: operations["health_scrape"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * TaskEvents
         * @description Events of a task; ask again with `after` set to `next` until `done`.
         */
        TaskEvents: {
            items: components["schemas"]["Told"][];
            next: string | null;
            done: boolean;
        };
        /**
         * Told
         * @description One event: its kind, its cursor, and what it says.
         */
        Told: {
            event: string;
            id: string;
            data: Record<string, unknown>;
        };
        /**
         * Events
         * @description Events of all tasks; ask again with `after` set to `next`.
         */
        Events: {
            items: components["schemas"]["Told"][];
            next: string;
        };
        /**
         * NewTicket
         * @description For what a ticket is.
         */
        NewTicket: {
            path: string;
        };
        /**
         * Login
         * @description An API key, given once.
         */
        Login: {
            key: string;
        };
        /**
         * LoggedIn
         * @description Who it is.
         */
        LoggedIn: {
            /** @enum {unknown} */
            role: "admin" | "client" | "operator" | "session" | "worker";
            name: string;
            read_only: boolean;
        };
        /**
         * Problem
         * @description Why a request was refused (RFC 9457).
         */
        Problem: {
            type: string;
            title: string;
            status: number;
            detail: string;
            code: string;
            /** @default  */
            field?: string;
        };
        /**
         * NewTask
         * @description A task to be enqueued.
         */
        NewTask: {
            /** @default default */
            queue?: string | null;
            /** @default 2 */
            priority?: number | ("critical" | "high" | "low" | "normal") | null;
            /** @default 0 */
            delay?: (number | string) | null;
            /** @default null */
            run_at?: string | null;
            /** @default 4 */
            max_attempts?: number | null;
            /** @default 3 */
            max_losses?: number | null;
            /** @default null */
            timeout?: (number | string) | null;
            /** @default null */
            overdue_after?: (number | string) | null;
            /** @default null */
            max_age?: (number | string) | null;
            /** @default null */
            unique_key?: string | null;
            /** @default null */
            unique_for?: (number | string) | null;
            /** @default null */
            session_id?: string | null;
            /** @default null */
            user_id?: string | null;
            /** @default [] */
            tags?: string[] | null;
            /** @default null */
            id?: string | null;
            /** @default null */
            parent_id?: string | null;
            /** @default null */
            workflow_id?: string | null;
            /** @default [] */
            after?: string[] | string | null;
            /** @default success */
            needs?: ("any" | "success") | null;
            /** @default null */
            hold?: string | null;
            /** @default true */
            followed?: boolean | null;
            type: string;
            /** @default {} */
            payload?: Record<string, unknown>;
        };
        /**
         * NewSummary
         * @description A text to be summarised by the type `summarize`.
         */
        NewSummary: {
            /** @default default */
            queue?: string | null;
            /** @default 2 */
            priority?: number | ("critical" | "high" | "low" | "normal") | null;
            /** @default 0 */
            delay?: (number | string) | null;
            /** @default null */
            run_at?: string | null;
            /** @default 4 */
            max_attempts?: number | null;
            /** @default 3 */
            max_losses?: number | null;
            /** @default null */
            timeout?: (number | string) | null;
            /** @default null */
            overdue_after?: (number | string) | null;
            /** @default null */
            max_age?: (number | string) | null;
            /** @default null */
            unique_key?: string | null;
            /** @default null */
            unique_for?: (number | string) | null;
            /** @default null */
            session_id?: string | null;
            /** @default null */
            user_id?: string | null;
            /** @default [] */
            tags?: string[] | null;
            /** @default null */
            id?: string | null;
            /** @default null */
            parent_id?: string | null;
            /** @default null */
            workflow_id?: string | null;
            /** @default [] */
            after?: string[] | string | null;
            /** @default success */
            needs?: ("any" | "success") | null;
            /** @default null */
            hold?: string | null;
            /** @default true */
            followed?: boolean | null;
            content: string;
        };
        /**
         * Batch
         * @description Tasks that are enqueued in one step: all of them or none.
         */
        Batch: {
            tasks: components["schemas"]["NewTask"][];
        };
        /**
         * Task
         * @description The record of a task.
         */
        Task: {
            /** Format: uuid */
            id: string;
            type: string;
            queue: string;
            /** @enum {unknown} */
            lane: "primary" | "retry";
            priority: number;
            /** @enum {unknown} */
            state: "cancelled" | "completed" | "dead" | "pending" | "running";
            /** @enum {unknown} */
            status: "blocked" | "cancelled" | "completed" | "dead" | "ready" | "retrying" | "running" | "scheduled" | "stalled" | "throttled";
            parked: string | null;
            payload: Record<string, unknown>;
            result: unknown;
            error: components["schemas"]["TaskError"] | null;
            attempts: components["schemas"]["Attempt"][];
            progress: components["schemas"]["Progress"] | null;
            attempt: number;
            max_attempts: number;
            losses: number;
            max_losses: number;
            timeout: number | null;
            overdue_after: number | null;
            overdue_at: string | null;
            max_age: number | null;
            /** Format: date-time */
            run_at: string;
            retry_at: string | null;
            /** Format: date-time */
            created_at: string;
            started_at: string | null;
            /** Format: date-time */
            updated_at: string;
            completed_at: string | null;
            worker: string | null;
            lease_until: string | null;
            limits: string[];
            reason: string | null;
            fingerprint: string | null;
            session_id: string | null;
            user_id: string | null;
            tags: string[];
            parent_id: string | null;
            workflow_id: string | null;
            origin_id: string | null;
            after: string[];
            unique_key: string | null;
            version: number;
            usage?: components["schemas"]["UsageSum"];
        };
        /**
         * TaskError
         * @description How the last attempt that failed did so, in full.
         */
        TaskError: {
            code: string;
            type: string;
            message: string;
            details: unknown;
            traceback: string | null;
        };
        /**
         * Attempt
         * @description One try at running a task.
         */
        Attempt: {
            number: number;
            worker: string;
            /** @enum {unknown} */
            lane: "primary" | "retry";
            /** Format: date-time */
            started_at: string;
            /** Format: date-time */
            ended_at: string;
            /** @enum {unknown} */
            outcome: "cancelled" | "failed" | "released" | "stalled" | "succeeded" | "timed_out" | "waiting";
            error: components["schemas"]["AttemptError"] | null;
            usage?: components["schemas"]["UsageSum"] | null;
        };
        /**
         * AttemptError
         * @description How an attempt failed.
         */
        AttemptError: {
            code: string;
            type: string;
            message: string;
        };
        /**
         * UsageSum
         * @description What was used, added up.
         */
        UsageSum: {
            reports: number;
            tokens: number;
            input_tokens: number;
            output_tokens: number;
            cost: number;
            more: {
                [key: string]: number;
            };
        };
        /**
         * Progress
         * @description How far the running attempt is.
         */
        Progress: {
            percent: number;
            message: string;
            elapsed_ms: number;
            /** Format: date-time */
            updated_at: string;
            data: Record<string, unknown>;
        };
        /**
         * Enqueued
         * @description A task as its enqueue answers.
         */
        Enqueued: {
            /** Format: uuid */
            id: string;
            type: string;
            queue: string;
            /** @enum {unknown} */
            lane: "primary" | "retry";
            priority: number;
            /** @enum {unknown} */
            state: "cancelled" | "completed" | "dead" | "pending" | "running";
            /** @enum {unknown} */
            status: "blocked" | "cancelled" | "completed" | "dead" | "ready" | "retrying" | "running" | "scheduled" | "stalled" | "throttled";
            parked: string | null;
            payload: Record<string, unknown>;
            result: unknown;
            error: components["schemas"]["TaskError"] | null;
            attempts: components["schemas"]["Attempt"][];
            progress: components["schemas"]["Progress"] | null;
            attempt: number;
            max_attempts: number;
            losses: number;
            max_losses: number;
            timeout: number | null;
            overdue_after: number | null;
            overdue_at: string | null;
            max_age: number | null;
            /** Format: date-time */
            run_at: string;
            retry_at: string | null;
            /** Format: date-time */
            created_at: string;
            started_at: string | null;
            /** Format: date-time */
            updated_at: string;
            completed_at: string | null;
            worker: string | null;
            lease_until: string | null;
            limits: string[];
            reason: string | null;
            fingerprint: string | null;
            session_id: string | null;
            user_id: string | null;
            tags: string[];
            parent_id: string | null;
            workflow_id: string | null;
            origin_id: string | null;
            after: string[];
            unique_key: string | null;
            version: number;
            usage?: components["schemas"]["UsageSum"];
            existing: boolean;
            /** @enum {unknown} */
            durability: "fsync" | "memory" | "replicated";
        };
        /**
         * EnqueuedBatch
         * @description The tasks of a batch, in its order.
         */
        EnqueuedBatch: {
            items: components["schemas"]["Enqueued"][];
        };
        /**
         * TaskPage
         * @description A page of tasks, newest first; `next` is the cursor of the page behind it.
         */
        TaskPage: {
            items: components["schemas"]["Task"][];
            next: string | null;
        };
        /**
         * Why
         * @description The one thing a task waits for; where the time went, for one that is over.
         */
        Why: {
            /** Format: uuid */
            task_id: string;
            /** @enum {unknown} */
            status: "blocked" | "cancelled" | "completed" | "dead" | "ready" | "retrying" | "running" | "scheduled" | "stalled" | "throttled";
            waits_for: string | null;
            text: string;
            action: string | null;
            until: string | null;
            estimate_seconds: number | null;
            holders: string[];
            ahead: number | null;
            spent: {
                [key: string]: number;
            } | null;
        };
        /**
         * Reason
         * @description Why a task is cancelled.
         */
        Reason: {
            /** @default cancelled */
            reason?: string;
        };
        /**
         * Edit
         * @description Another payload to retry with.
         */
        Edit: {
            /** @default null */
            payload?: Record<string, unknown> | null;
        };
        /**
         * Bulk
         * @description What to do with all tasks that fit a filter.
         */
        Bulk: {
            /** @enum {unknown} */
            action: "cancel" | "delete" | "retry";
            filter: string;
            /** @default false */
            dry_run?: boolean;
            /** @default null */
            rate?: string | null;
        };
        /**
         * Matched
         * @description How many tasks fit.
         */
        Matched: {
            matched: number;
            dry_run: boolean;
        };
        /**
         * Requeued
         * @description What became of the tasks of lost workers.
         */
        Requeued: {
            requeued: number;
            died: number;
        };
        /**
         * Queues
         * @description Depths and counts of all queues.
         */
        Queues: {
            queues: {
                [key: string]: number;
            };
            states: {
                [key: string]: number;
            };
            retry_ratio: number;
            /** @enum {unknown} */
            pressure: "critical" | "normal" | "warning";
            by_queue: {
                [key: string]: components["schemas"]["Queue"];
            };
        };
        /**
         * Queue
         * @description Depths and counts of one queue.
         */
        Queue: {
            primary: number;
            retry: number;
            scheduled: number;
            dlq: number;
            states: {
                [key: string]: number;
            };
            retry_ratio: number;
            /** @enum {unknown} */
            pressure: "critical" | "normal" | "warning";
            oldest_seconds: number;
            paused: boolean;
            completed_per_minute: number;
        };
        /**
         * Paused
         * @description A queue, and whether workers take from it.
         */
        Paused: {
            queue: string;
            paused: boolean;
        };
        /**
         * WorkerPage
         * @description All workers.
         */
        WorkerPage: {
            items: components["schemas"]["Worker"][];
            next: string | null;
        };
        /**
         * Worker
         * @description A worker that has registered.
         */
        Worker: {
            id: string;
            host: string;
            pid: number;
            version: string;
            queues: string[];
            types: string[];
            slots: number;
            running: number;
            alive: boolean;
            started_at: string | null;
            /** Format: date-time */
            seen_at: string;
            /** Format: date-time */
            lease_until: string;
            draining: boolean;
        };
        /**
         * LimitSpec
         * @description A limit: slots, a rate such as `60/min`, a circuit breaker, or several of them.
         */
        LimitSpec: {
            /** @default null */
            slots?: number | null;
            /** @default null */
            rate?: string | null;
            /** @default null */
            trip?: components["schemas"]["TripSpec"] | null;
        };
        /**
         * TripSpec
         * @description A circuit breaker.
         */
        TripSpec: {
            /** @default 0.5 */
            rate?: number;
            /** @default 10 */
            volume?: number;
            /**
             * @description seconds, or text such as '10m'
             * @default 60s
             */
            window?: number | string;
            /**
             * @description seconds, or text such as '10m'
             * @default 60s
             */
            open?: number | string;
        };
        /**
         * Limit
         * @description A definition, by exact key or family.
         */
        Limit: {
            key: string;
            slots: number | null;
            rate: string | null;
            trip: components["schemas"]["TripSpec"] | null;
        };
        /**
         * LimitPage
         * @description All definitions, and the keys in use.
         */
        LimitPage: {
            items: components["schemas"]["KnownLimit"][];
            gauges: components["schemas"]["Gauge"][];
            next: string | null;
        };
        /**
         * KnownLimit
         * @description A definition and who gave it.
         */
        KnownLimit: {
            key: string;
            slots: number | null;
            rate: string | null;
            trip: components["schemas"]["TripSpec"] | null;
            /** @enum {unknown} */
            source: "code" | "people";
        };
        /**
         * Gauge
         * @description The state of a limit key that is in use.
         */
        Gauge: {
            key: string;
            limit: components["schemas"]["Limit"] | null;
            used: number;
            waiting: number;
            /** @enum {unknown} */
            circuit: "closed" | "half_open" | "open";
            open_until: string | null;
            paused_until: string | null;
            probe: string | null;
            holders: string[];
        };
        /**
         * TypePage
         * @description All types.
         */
        TypePage: {
            items: components["schemas"]["TaskType"][];
            next: string | null;
        };
        /**
         * TaskType
         * @description A type that may be enqueued.
         */
        TaskType: {
            type: string;
            mode: ("async" | "command" | "external" | "process" | "thread") | null;
            queue: string | null;
            description: string | null;
            schema: Record<string, unknown> | null;
            result_schema: Record<string, unknown> | null;
            workers: number;
        };
        /**
         * BulkEnqueued
         * @description The task that does it, and how many tasks fitted when it was enqueued.
         */
        BulkEnqueued: {
            /** Format: uuid */
            id: string;
            type: string;
            queue: string;
            /** @enum {unknown} */
            lane: "primary" | "retry";
            priority: number;
            /** @enum {unknown} */
            state: "cancelled" | "completed" | "dead" | "pending" | "running";
            /** @enum {unknown} */
            status: "blocked" | "cancelled" | "completed" | "dead" | "ready" | "retrying" | "running" | "scheduled" | "stalled" | "throttled";
            parked: string | null;
            payload: Record<string, unknown>;
            result: unknown;
            error: components["schemas"]["TaskError"] | null;
            attempts: components["schemas"]["Attempt"][];
            progress: components["schemas"]["Progress"] | null;
            attempt: number;
            max_attempts: number;
            losses: number;
            max_losses: number;
            timeout: number | null;
            overdue_after: number | null;
            overdue_at: string | null;
            max_age: number | null;
            /** Format: date-time */
            run_at: string;
            retry_at: string | null;
            /** Format: date-time */
            created_at: string;
            started_at: string | null;
            /** Format: date-time */
            updated_at: string;
            completed_at: string | null;
            worker: string | null;
            lease_until: string | null;
            limits: string[];
            reason: string | null;
            fingerprint: string | null;
            session_id: string | null;
            user_id: string | null;
            tags: string[];
            parent_id: string | null;
            workflow_id: string | null;
            origin_id: string | null;
            after: string[];
            unique_key: string | null;
            version: number;
            usage?: components["schemas"]["UsageSum"];
            existing: boolean;
            /** @enum {unknown} */
            durability: "fsync" | "memory" | "replicated";
            matched: number;
        };
        /**
         * DeadGroupPage
         * @description Dead tasks by error, the most frequent first.
         */
        DeadGroupPage: {
            items: components["schemas"]["DeadGroup"][];
            next: string | null;
        };
        /**
         * DeadGroup
         * @description Dead tasks that failed in the same way.
         */
        DeadGroup: {
            fingerprint: string | null;
            type: string;
            count: number;
            error_type: string | null;
            message: string | null;
            reason: string | null;
            example: string | null;
            last_at: string | null;
        };
        /**
         * TaskMetrics
         * @description What happened, oldest first.
         */
        TaskMetrics: {
            items: components["schemas"]["TaskMetric"][];
            next: string | null;
        };
        /**
         * TaskMetric
         * @description What happened to one type in one queue, in one hour or day.
         */
        TaskMetric: {
            /** Format: date-time */
            begin: string;
            /** Format: date-time */
            end: string;
            type: string;
            queue: string;
            enqueued: number;
            completed: number;
            dead: number;
            cancelled: number;
            retried: number;
            failed: number;
            timed_out: number;
            error_rate: number | null;
            wait: components["schemas"]["Times"];
            run: components["schemas"]["Times"];
            heartbeat_delay: number;
        };
        /**
         * Times
         * @description How long something took, in seconds.
         */
        Times: {
            average: number | null;
            p95: number | null;
        };
        /**
         * Health
         * @description How the server, its engine and its workers are.
         */
        Health: {
            /** @enum {unknown} */
            status: "degraded" | "healthy" | "unhealthy";
            components: {
                [key: string]: Record<string, unknown> | null;
            };
            timestamp: string | null;
        };
        /**
         * Alive
         * @description The process answers.
         */
        Alive: {
            status: string;
        };
        /**
         * NewKey
         * @description An API key to be made. Without queues and types it is for all of them.
         */
        NewKey: {
            /** @enum {unknown} */
            role: "admin" | "client" | "operator" | "worker";
            /** @default null */
            name?: string | null;
            /** @default [] */
            queues?: string[];
            /** @default [] */
            types?: string[];
            /** @default false */
            read_only?: boolean;
            /** @default null */
            rate?: string | null;
            /** @default null */
            quota?: components["schemas"]["Quota"] | null;
            /** @default null */
            expires?: (number | string) | null;
        };
        /**
         * Quota
         * @description What a key may ask of a server in all; None is no bound.
         */
        Quota: {
            /** @default null */
            living?: number | null;
            /** @default null */
            tasks?: number | null;
            /** @default null */
            bytes?: number | null;
            /** @default null */
            streams?: number | null;
        };
        /**
         * MadeKey
         * @description A new API key: the only time that it is shown.
         */
        MadeKey: {
            id: string;
            name: string;
            /** @enum {unknown} */
            role: "admin" | "client" | "operator" | "worker";
            queues: string[];
            types: string[];
            read_only: boolean;
            rate: string | null;
            quota: components["schemas"]["Quota"] | null;
            /** Format: date-time */
            created_at: string;
            expires_at: string | null;
            key: string;
        };
        /**
         * KeyPage
         * @description All API keys.
         */
        KeyPage: {
            items: components["schemas"]["Key"][];
            next: string | null;
        };
        /**
         * Key
         * @description An API key, without the key.
         */
        Key: {
            id: string;
            name: string;
            /** @enum {unknown} */
            role: "admin" | "client" | "operator" | "worker";
            queues: string[];
            types: string[];
            read_only: boolean;
            rate: string | null;
            quota: components["schemas"]["Quota"] | null;
            /** Format: date-time */
            created_at: string;
            expires_at: string | null;
        };
        /**
         * NewToken
         * @description For whom a session token is.
         */
        NewToken: {
            /** @default null */
            user_id?: string | null;
            /** @default [] */
            types?: string[];
            /** @default null */
            priority?: number | ("critical" | "high" | "low" | "normal") | null;
            /**
             * @description seconds, or text such as '10m'
             * @default 12h
             */
            ttl?: number | string;
        };
        /**
         * Token
         * @description A session token.
         */
        Token: {
            token: string;
            session_id: string;
            user_id: string | null;
        };
        /**
         * Ticket
         * @description Good for one connection, within half a minute: `…/ws?ticket=…`.
         */
        Ticket: {
            ticket: string;
        };
        /**
         * NewWebhook
         * @description Where to send what.
         */
        NewWebhook: {
            url: string;
            /**
             * @default [
             *       "task.completed",
             *       "task.dead",
             *       "task.cancelled",
             *       "task.overdue"
             *     ]
             */
            events?: ("task.cancelled" | "task.completed" | "task.dead" | "task.overdue")[];
            /** @default  */
            filter?: string;
        };
        /**
         * Webhook
         * @description A subscription.
         */
        Webhook: {
            /** Format: uuid */
            id: string;
            url: string;
            events: ("task.cancelled" | "task.completed" | "task.dead" | "task.overdue")[];
            filter: string;
            disabled: string | null;
            /** Format: date-time */
            created_at: string;
        };
        /**
         * MadeWebhook
         * @description A subscription with its newest secret.
         */
        MadeWebhook: {
            /** Format: uuid */
            id: string;
            url: string;
            events: ("task.cancelled" | "task.completed" | "task.dead" | "task.overdue")[];
            filter: string;
            disabled: string | null;
            /** Format: date-time */
            created_at: string;
            secret: string;
        };
        /**
         * WebhookPage
         * @description All subscriptions.
         */
        WebhookPage: {
            items: components["schemas"]["Webhook"][];
            next: string | null;
        };
        /**
         * NoticePage
         * @description Notifications that were not acknowledged; `more` when there are others behind them, at
         *         `next`.
         */
        NoticePage: {
            items: components["schemas"]["Notice"][];
            more: boolean;
            next: string | null;
        };
        /**
         * Notice
         * @description One notification.
         */
        Notice: {
            /** Format: uuid */
            notification_id: string;
            /** @enum {unknown} */
            type: "task_cancelled" | "task_completed" | "task_failed" | "task_overdue" | "task_question" | "workflow_escalated";
            /** Format: uuid */
            task_id: string;
            task_type: string;
            message: string;
            /** @enum {unknown} */
            action: "answer" | "none" | "retrieve_result" | "show_error" | "wait";
            /** Format: date-time */
            timestamp: string;
            /** @enum {unknown} */
            priority: "critical" | "high" | "low" | "normal";
        };
        /**
         * Ack
         * @description Notifications that have arrived.
         */
        Ack: {
            ids: string[];
        };
        /**
         * Acked
         * @description Those that were acknowledged now, and not before.
         */
        Acked: {
            acknowledged: string[];
        };
        /**
         * Preferences
         * @description What a session wants to be told.
         */
        Preferences: {
            /**
             * @default [
             *       "task_completed",
             *       "task_failed",
             *       "task_overdue",
             *       "task_question",
             *       "workflow_escalated"
             *     ]
             */
            types?: ("task_cancelled" | "task_completed" | "task_failed" | "task_overdue" | "task_question" | "workflow_escalated")[];
            /**
             * @default low
             * @enum {unknown}
             */
            min_priority?: "critical" | "high" | "low" | "normal";
            /** @default true */
            push?: boolean;
        };
        /**
         * UsagePage
         * @description What was used from one day to another, the dearest first; days as they come.
         */
        UsagePage: {
            /** @enum {unknown} */
            by: "day" | "model" | "queue" | "session" | "type" | "user";
            from: string;
            to: string;
            items: components["schemas"]["UsageItem"][];
            total: components["schemas"]["UsageSum"];
            next: string | null;
        };
        /**
         * UsageItem
         * @description The sum for one day, type, queue, model, user or session; null is for none.
         */
        UsageItem: {
            reports: number;
            tokens: number;
            input_tokens: number;
            output_tokens: number;
            cost: number;
            more: {
                [key: string]: number;
            };
            day?: string;
            type?: string | null;
            queue?: string | null;
            model?: string | null;
            user?: string | null;
            session?: string | null;
        };
        /**
         * BudgetSpec
         * @description Amounts such as `5.00/day`: per hour, day or month (UTC), or without a span for ever.
         */
        BudgetSpec: {
            /** @default null */
            cost?: string | null;
            /** @default null */
            tokens?: string | null;
            /**
             * @default hold
             * @enum {unknown}
             */
            then?: "hold" | "refuse";
        };
        /**
         * Budget
         * @description A definition: `global`, or `type:`, `queue:`, `user:` or `session:` with a name or a star.
         */
        Budget: {
            key: string;
            cost: string | null;
            tokens: string | null;
            /** @enum {unknown} */
            then: "hold" | "refuse";
            /** @enum {unknown} */
            source: "code" | "people";
        };
        /**
         * BudgetPage
         * @description All budgets.
         */
        BudgetPage: {
            items: components["schemas"]["KnownBudget"][];
            next: string | null;
        };
        /**
         * KnownBudget
         * @description A budget and its use.
         */
        KnownBudget: {
            key: string;
            cost: string | null;
            tokens: string | null;
            /** @enum {unknown} */
            then: "hold" | "refuse";
            /** @enum {unknown} */
            source: "code" | "people";
            used: components["schemas"]["BudgetUse"][];
        };
        /**
         * BudgetUse
         * @description What was used in the span that runs.
         */
        BudgetUse: {
            key: string;
            /** @enum {unknown} */
            measure: "cost" | "tokens";
            used: number;
            amount: number;
            /** @enum {unknown} */
            span: "day" | "hour" | "month" | "total";
            resets_at: string | null;
            waiting: number;
        };
        /**
         * NewUsage
         * @description What the attempt has used since it last told. Without `tokens` they are those that went in
         *         and came out.
         */
        NewUsage: {
            /** @default null */
            tokens?: number | null;
            /** @default null */
            cost?: number | string | null;
            /** @default null */
            model?: string | null;
            /** @default null */
            input_tokens?: number | null;
            /** @default null */
            output_tokens?: number | null;
            /** @default null */
            more?: {
                [key: string]: number;
            } | null;
        };
        /**
         * NewWorkflow
         * @description A graph of tasks. What else is said is said of all of them.
         */
        NewWorkflow: {
            name: string;
            nodes: components["schemas"]["NewNode"][];
            /** @default [] */
            escalate?: components["schemas"]["EscalationSpec"][];
            /** @default null */
            id?: string | null;
            /** @default null */
            queue?: string | null;
            /** @default null */
            priority?: number | ("critical" | "high" | "low" | "normal") | null;
            /** @default null */
            delay?: (number | string) | null;
            /** @default null */
            run_at?: string | null;
            /** @default null */
            max_attempts?: number | null;
            /** @default null */
            max_losses?: number | null;
            /** @default null */
            timeout?: (number | string) | null;
            /** @default null */
            overdue_after?: (number | string) | null;
            /** @default null */
            max_age?: (number | string) | null;
            /** @default null */
            session_id?: string | null;
            /** @default null */
            user_id?: string | null;
            /** @default null */
            tags?: string[] | null;
            /** @default null */
            followed?: boolean | null;
        };
        /**
         * NewNode
         * @description One task of a workflow; with `over` one for each item of a list; with `nodes` a workflow.
         */
        NewNode: {
            name: string;
            type?: string;
            nodes?: components["schemas"]["NewNode"][];
            /** @default {} */
            payload?: Record<string, unknown>;
            /** @default [] */
            after?: string[] | string;
            /**
             * @default success
             * @enum {unknown}
             */
            needs?: "any" | "success";
            /** @default null */
            when?: components["schemas"]["WhenSpec"] | null;
            /** @default null */
            undo?: string | null;
            over?: unknown[] | components["schemas"]["Ref"];
            /** @default null */
            item?: string | null;
            options?: components["schemas"]["NodeOptions"];
        };
        /**
         * WhenSpec
         * @description What must hold for a node to run: a result compared with a value, or (`is`) its truth.
         */
        WhenSpec: {
            $from: string;
            /**
             * @description `words.0`, or ["words", 0]
             * @default []
             */
            path?: string | (string | number)[];
            /**
             * @default is
             * @enum {unknown}
             */
            test?: "!=" | "<" | "<=" | "==" | ">" | ">=" | "is";
            /** @default null */
            value?: unknown;
        };
        /**
         * Ref
         * @description Stands for the result of another node, or the part of it at a path, in a payload.
         */
        Ref: {
            $from: string;
            /**
             * @description `words.0`, or ["words", 0]
             * @default []
             */
            path?: string | (string | number)[];
        };
        /**
         * NodeOptions
         * @description What may be said about the task of a node.
         */
        NodeOptions: {
            queue?: string;
            priority?: number | ("critical" | "high" | "low" | "normal");
            /** @description seconds, or text such as '10m' */
            delay?: number | string;
            /** Format: date-time */
            run_at?: string;
            max_attempts?: number;
            max_losses?: number;
            /** @description seconds, or text such as '10m' */
            timeout?: number | string;
            /** @description seconds, or text such as '10m' */
            overdue_after?: number | string;
            /** @description seconds, or text such as '10m' */
            max_age?: number | string;
            hold?: string;
            tags?: string[];
            followed?: boolean;
        };
        /**
         * EscalationSpec
         * @description When one thing (`failures`, `dead` or `age`) has happened in a workflow, what is done about
         *         it, once.
         */
        EscalationSpec: {
            failures?: number;
            dead?: number;
            /** @description seconds, or text such as '10m' */
            age?: number | string;
            of?: string;
            priority?: number | ("critical" | "high" | "low" | "normal");
            spawn?: components["schemas"]["SpawnSpec"];
            notify?: string;
            /** @default false */
            stop?: boolean;
        };
        /**
         * SpawnSpec
         * @description A task to enqueue.
         */
        SpawnSpec: {
            type: string;
            /** @default {} */
            payload?: Record<string, unknown>;
        };
        /**
         * EnqueuedWorkflow
         * @description A workflow as its enqueue answers.
         */
        EnqueuedWorkflow: {
            /** Format: uuid */
            id: string;
            name: string;
            /** @enum {unknown} */
            status: "cancelled" | "completed" | "dead" | "running" | "undo_failed" | "undoing" | "undone";
            origin: string | null;
            within: string | null;
            percent: number;
            counts: {
                [key: string]: number;
            };
            result: unknown;
            error: components["schemas"]["TaskError"] | null;
            reason: string | null;
            priority: number;
            session_id: string | null;
            user_id: string | null;
            tags: string[];
            /** Format: date-time */
            created_at: string;
            started_at: string | null;
            completed_at: string | null;
            existing: boolean;
            /** @enum {unknown} */
            durability: "fsync" | "memory" | "replicated";
        };
        /**
         * WorkflowItem
         * @description A workflow as one: how far its tasks are, and its result.
         */
        WorkflowItem: {
            /** Format: uuid */
            id: string;
            name: string;
            /** @enum {unknown} */
            status: "cancelled" | "completed" | "dead" | "running" | "undo_failed" | "undoing" | "undone";
            origin: string | null;
            within: string | null;
            percent: number;
            counts: {
                [key: string]: number;
            };
            result: unknown;
            error: components["schemas"]["TaskError"] | null;
            reason: string | null;
            priority: number;
            session_id: string | null;
            user_id: string | null;
            tags: string[];
            /** Format: date-time */
            created_at: string;
            started_at: string | null;
            completed_at: string | null;
        };
        /**
         * Workflow
         * @description A workflow with its graph.
         */
        Workflow: {
            /** Format: uuid */
            id: string;
            name: string;
            /** @enum {unknown} */
            status: "cancelled" | "completed" | "dead" | "running" | "undo_failed" | "undoing" | "undone";
            origin: string | null;
            within: string | null;
            percent: number;
            counts: {
                [key: string]: number;
            };
            result: unknown;
            error: components["schemas"]["TaskError"] | null;
            reason: string | null;
            priority: number;
            session_id: string | null;
            user_id: string | null;
            tags: string[];
            /** Format: date-time */
            created_at: string;
            started_at: string | null;
            completed_at: string | null;
            nodes: components["schemas"]["WorkflowNode"][];
            truncated: boolean;
            undo: string[];
        };
        /**
         * WorkflowNode
         * @description A task of a workflow, as its graph is drawn.
         */
        WorkflowNode: {
            /** Format: uuid */
            id: string;
            name: string;
            /** @enum {unknown} */
            kind: "child" | "map" | "node" | "undo" | "workflow";
            type: string;
            /** @enum {unknown} */
            status: "blocked" | "cancelled" | "completed" | "dead" | "ready" | "retrying" | "running" | "scheduled" | "stalled" | "throttled";
            after: string[];
            /** @enum {unknown} */
            needs: "any" | "success";
            when: components["schemas"]["When"] | null;
            undo: string | null;
            error: components["schemas"]["AttemptError"] | null;
            parent_id: string | null;
            reason: string | null;
            attempt: number;
            max_attempts: number;
            progress: components["schemas"]["Progress"] | null;
            priority: number;
            started_at: string | null;
            completed_at: string | null;
            /** Format: date-time */
            run_at: string;
        };
        /**
         * When
         * @description What must hold for a node to run.
         */
        When: {
            /** Format: uuid */
            id: string;
            path: (string | number)[];
            /** @enum {unknown} */
            test: "!=" | "<" | "<=" | "==" | ">" | ">=" | "is";
            value: unknown;
        };
        /**
         * WorkflowPage
         * @description A page of workflows, newest first.
         */
        WorkflowPage: {
            items: components["schemas"]["WorkflowItem"][];
            next: string | null;
        };
        /**
         * CancelWorkflow
         * @description Why it is cancelled; with `from` only that node, and what comes after it.
         */
        CancelWorkflow: {
            /** @default cancelled */
            reason?: string;
            /** @default null */
            from?: string | null;
        };
        /**
         * RetryWorkflow
         * @description From which node on it runs again, as a new workflow; not given, from where it died.
         */
        RetryWorkflow: {
            /** @default null */
            from?: string | null;
        };
        /**
         * NewSchedule
         * @description What to enqueue, and when: `every` (a cron expression, or a span) or `at`, one moment.
         */
        NewSchedule: {
            name: string;
            type: string;
            /** @default {} */
            payload?: Record<string, unknown>;
            /** @default null */
            every?: (number | string) | null;
            /** @default null */
            at?: string | null;
            /** @default UTC */
            tz?: string;
            /**
             * @default latest
             * @enum {unknown}
             */
            catch_up?: "all" | "latest" | "none";
            /**
             * @default allow
             * @enum {unknown}
             */
            overlap?: "allow" | "cancel" | "skip";
            /**
             * @description seconds, or text such as '10m'
             * @default 0
             */
            jitter?: number | string;
            /** @default {} */
            options?: Record<string, unknown>;
        };
        /**
         * Schedule
         * @description A schedule, and how far it is.
         */
        Schedule: {
            name: string;
            type: string;
            payload: Record<string, unknown>;
            every: string | null;
            at: string | null;
            tz: string;
            /** @enum {unknown} */
            catch_up: "all" | "latest" | "none";
            /** @enum {unknown} */
            overlap: "allow" | "cancel" | "skip";
            jitter: number;
            options: Record<string, unknown>;
            /** @enum {unknown} */
            source: "code" | "people";
            paused: boolean;
            error: string | null;
            last_task: string | null;
            last_at: string | null;
            next: string[];
        };
        /**
         * SchedulePage
         * @description All schedules.
         */
        SchedulePage: {
            items: components["schemas"]["Schedule"][];
            next: string | null;
        };
        /**
         * ApprovalPage
         * @description Open questions.
         */
        ApprovalPage: {
            items: components["schemas"]["Approval"][];
            next: string | null;
        };
        /**
         * Approval
         * @description An open question of a task to people.
         */
        Approval: {
            /** Format: uuid */
            task_id: string;
            type: string;
            question: string;
            action: unknown;
            signal: string;
            deadline: string | null;
            /** Format: date-time */
            asked_at: string;
            session_id: string | null;
            user_id: string | null;
            workflow_id: string | null;
            tags: string[];
        };
        /**
         * Answer
         * @description The answer to what a task asks.
         */
        Answer: {
            answer: unknown;
        };
        /**
         * Rerun
         * @description From where a task runs again, and with what.
         */
        Rerun: {
            /** @default null */
            from_step?: string | null;
            /** @default null */
            payload?: Record<string, unknown> | null;
            /** @default null */
            steps?: Record<string, unknown> | null;
        };
        /**
         * Steps
         * @description What a task remembers, in order, and the signals it was sent.
         */
        Steps: {
            items: components["schemas"]["RememberedStep"][];
            signals: components["schemas"]["SentSignal"][];
        };
        /**
         * RememberedStep
         * @description What a task remembers: a step, a wait, a call, a sleep or a change, by the name it has.
         */
        RememberedStep: {
            name: string;
            /** @enum {unknown} */
            kind: "call" | "changed" | "sleep" | "step" | "wait";
            done: boolean;
            late: boolean;
            value: unknown;
            carried: boolean;
        };
        /**
         * SentSignal
         * @description A signal that a task was sent.
         */
        SentSignal: {
            name: string;
            data: unknown;
            /** Format: date-time */
            at: string;
        };
        /**
         * NewClaim
         * @description What a worker asks for: queues, types or both. Without types, whatever is in its queues.
         */
        NewClaim: {
            worker: string;
            /** @default [] */
            queues?: string[];
            /** @default [] */
            types?: string[];
            /** @default 1 */
            max?: number;
            /** @default 0 */
            wait?: number;
            /** @default null */
            token?: string | null;
        };
        /**
         * Claimed
         * @description Tasks to work on; none when there was none in time.
         */
        Claimed: {
            items: components["schemas"]["LeasedTask"][];
        };
        /**
         * LeasedTask
         * @description A task to work on, and the right to do so.
         */
        LeasedTask: {
            lease: string;
            task: components["schemas"]["Task"];
            /** Format: date-time */
            until: string;
            deadline: string | null;
            steps: Record<string, unknown>;
            signals: components["schemas"]["SignalCome"][];
        };
        /**
         * SignalCome
         * @description A signal that has come for a task.
         */
        SignalCome: {
            name: string;
            data: unknown;
            /** Format: date-time */
            at: string;
        };
        /**
         * Kept
         * @description Until when the lease holds now, and why the task is to stop, if it is.
         */
        Kept: {
            /** Format: date-time */
            until: string;
            cancel: string | null;
        };
        /**
         * NewProgress
         * @description How far an attempt is.
         */
        NewProgress: {
            percent: number;
            /** @default  */
            message?: string;
            /** @default {} */
            data?: Record<string, unknown>;
            /** @default null */
            usage?: components["schemas"]["NewUsage"] | null;
        };
        /**
         * NewChunk
         * @description A piece of output.
         */
        NewChunk: {
            chunk: unknown;
        };
        /**
         * NewResult
         * @description What came out.
         */
        NewResult: {
            /** @default null */
            result?: unknown;
            /** @default null */
            usage?: components["schemas"]["NewUsage"] | null;
        };
        /**
         * NewFailure
         * @description How an attempt failed. `retry`: false never, true by the schedule, or after how long; null
         *         leaves it to the policy of the type.
         */
        NewFailure: {
            /** @default null */
            error?: components["schemas"]["FailureReport"] | null;
            /** @default null */
            retry?: boolean | (number | string) | null;
            /** @default null */
            usage?: components["schemas"]["NewUsage"] | null;
        };
        /**
         * FailureReport
         * @description What went wrong; `status` (HTTP) or `code` tell whether another attempt may help.
         */
        FailureReport: {
            /** @default Error */
            type?: string;
            /** @default  */
            message?: string;
            /** @default null */
            code?: string | null;
            /** @default null */
            status?: number | null;
            /** @default null */
            retry_after?: number | null;
            /** @default null */
            details?: Record<string, unknown> | null;
            /** @default null */
            traceback?: string | null;
        };
        /**
         * Ended
         * @description How the attempt was recorded.
         */
        Ended: {
            /** Format: uuid */
            task_id: string;
            /** @enum {unknown} */
            outcome: "cancelled" | "failed" | "released" | "stalled" | "succeeded" | "timed_out" | "waiting";
        };
    };
    responses: {
        /** @description The body is no JSON. */
        BadRequest: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description No key or token, or one that is unknown, revoked or over. */
        Unauthorized: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description This key or token may not do that. */
        Forbidden: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description There is no such thing, or the caller may not see it. */
        NotFound: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body did not arrive in time. */
        RequestTimeout: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description It does not apply to the state that the task, lease or record is in. */
        Conflict: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body, the payload or the result is too large. */
        RequestEntityTooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body is not JSON in UTF-8. */
        UnsupportedMediaType: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description There is no such part of it. */
        RequestedRangeNotSatisfiable: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description What was sent is wrong; `field` says which part. */
        UnprocessableEntity: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Asked too often; `Retry-After` says when to come back. */
        TooManyRequests: {
            headers: {
                /** @description Seconds to wait. */
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The engine does not answer, or the server is busy or shutting down. */
        ServiceUnavailable: {
            headers: {
                /** @description Seconds to wait. */
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    tasks_list_tasks: {
        parameters: {
            query?: {
                /** @description such as dead; several are separated by commas */
                status?: string;
                /** @description task type */
                type?: string;
                /** @description queue */
                queue?: string;
                /** @description session */
                session_id?: string;
                /** @description user */
                user_id?: string;
                /** @description tag */
                tag?: string;
                /** @description workflow */
                workflow_id?: string;
                /** @description a filter, as in `status:dead age>1h payload.user:ada -queue:bulk "some text"` */
                q?: string;
                /** @description 1 to 500, else 50 */
                limit?: number;
                /** @description `next` of the page before */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tasks, newest first; `next` is the cursor of the page behind it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_enqueue: {
        parameters: {
            query?: never;
            header?: {
                /** @description the same request with the same key within 24 h is the same task */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewTask"];
            };
        };
        responses: {
            /** @description A task as its enqueue answers. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Enqueued"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_summarize: {
        parameters: {
            query?: never;
            header?: {
                /** @description the same request with the same key within 24 h is the same task */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSummary"];
            };
        };
        responses: {
            /** @description A task as its enqueue answers. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Enqueued"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_enqueue_batch: {
        parameters: {
            query?: never;
            header?: {
                /** @description the same request with the same key within 24 h is the same task */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Batch"];
            };
        };
        responses: {
            /** @description The tasks of a batch, in its order. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EnqueuedBatch"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_bulk: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Bulk"];
            };
        };
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Matched"];
                };
            };
            /** @description The task that does it, and how many tasks fitted when it was enqueued. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkEnqueued"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_requeue_orphaned: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What became of the tasks of lost workers. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Requeued"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_get_task: {
        parameters: {
            query?: never;
            header?: {
                /** @description wait=20 answers when the task ends, after 20 s at the latest */
                Prefer?: string;
            };
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The record of a task. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_forget: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_get_why: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The one thing a task waits for; where the time went, for one that is over. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Why"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_retry: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Edit"];
            };
        };
        responses: {
            /** @description The record of a task. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_get_steps: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What a task remembers, in order, and the signals it was sent. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Steps"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_rerun: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Rerun"];
            };
        };
        responses: {
            /** @description The record of a task. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_cancel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Reason"];
            };
        };
        responses: {
            /** @description The record of a task. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks_signal: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
                /** @description The signal's name. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": unknown;
            };
        };
        responses: {
            /** @description The record of a task. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    workflows_list_workflows: {
        parameters: {
            query?: {
                /** @description running, completed, dead, cancelled, undoing, undone, undo_failed; several are separated by commas */
                status?: string;
                /** @description session */
                session_id?: string;
                /** @description user */
                user_id?: string;
                /** @description tag */
                tag?: string;
                /** @description a filter, as for tasks: `payload.name:ingest age>1h` */
                q?: string;
                /** @description 1 to 500, else 50 */
                limit?: number;
                /** @description `next` of the page before */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of workflows, newest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkflowPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    workflows_enqueue: {
        parameters: {
            query?: never;
            header?: {
                /** @description the same request with the same key within 24 h is the same task */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewWorkflow"];
            };
        };
        responses: {
            /** @description A workflow as its enqueue answers. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EnqueuedWorkflow"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    workflows_get_workflow: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The workflow's id. */
                workflow_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A workflow with its graph. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Workflow"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    workflows_cancel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The workflow's id. */
                workflow_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["CancelWorkflow"];
            };
        };
        responses: {
            /** @description A workflow as one: how far its tasks are, and its result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkflowItem"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    workflows_retry: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The workflow's id. */
                workflow_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RetryWorkflow"];
            };
        };
        responses: {
            /** @description A workflow as one: how far its tasks are, and its result. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkflowItem"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_list_schedules: {
        parameters: {
            query?: {
                /** @description how many firings of each, 1 to 100; else 3 */
                ahead?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All schedules. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SchedulePage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_save: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSchedule"];
            };
        };
        responses: {
            /** @description A schedule, and how far it is. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_get_schedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schedule's name. */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A schedule, and how far it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schedule's name. */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_pause: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schedule's name. */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A schedule, and how far it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_resume: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schedule's name. */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A schedule, and how far it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    schedules_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The schedule's name. */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The record of a task. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    approvals_list_approvals: {
        parameters: {
            query?: {
                /** @description task type */
                type?: string;
                /** @description queue */
                queue?: string;
                /** @description session */
                session_id?: string;
                /** @description user */
                user_id?: string;
                /** @description tag */
                tag?: string;
                /** @description workflow */
                workflow_id?: string;
                /** @description a filter, as in `status:dead age>1h payload.user:ada -queue:bulk "some text"` */
                q?: string;
                /** @description 1 to 500, else 50 */
                limit?: number;
                /** @description `next` of the page before */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Open questions. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApprovalPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    approvals_respond: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Answer"];
            };
        };
        responses: {
            /** @description The record of a task. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    events_stream_task: {
        parameters: {
            query?: {
                /** @description go on behind this event id, as the header Last-Event-ID does */
                after?: string;
            };
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    events_task_events: {
        parameters: {
            query?: {
                /** @description go on behind this event id, as the header Last-Event-ID does */
                after?: string;
                /** @description seconds to wait for an event when there is none, 0 to 60 */
                wait?: string;
            };
            header?: never;
            path: {
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events of a task; ask again with `after` set to `next` until `done`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskEvents"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    events_stream_all: {
        parameters: {
            query?: {
                /** @description go on behind this event id, as the header Last-Event-ID does; ^ is the beginning of the log */
                after?: string;
                /** @description only these kinds of events, separated by commas */
                kinds?: string;
                /** @description only events of tasks of these types */
                types?: string;
                /** @description only events of tasks in these queues */
                queues?: string;
                /** @description only events of this session */
                session_id?: string;
                /** @description only events of this workflow */
                workflow_id?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    events_poll_all: {
        parameters: {
            query?: {
                /** @description go on behind this event id, as the header Last-Event-ID does; ^ is the beginning of the log */
                after?: string;
                /** @description only these kinds of events, separated by commas */
                kinds?: string;
                /** @description only events of tasks of these types */
                types?: string;
                /** @description only events of tasks in these queues */
                queues?: string;
                /** @description only events of this session */
                session_id?: string;
                /** @description only events of this workflow */
                workflow_id?: string;
                /** @description seconds to wait for an event when there is none, 0 to 60 */
                wait?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events of all tasks; ask again with `after` set to `next`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Events"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_claim: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewClaim"];
            };
        };
        responses: {
            /** @description Tasks to work on; none when there was none in time. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Claimed"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_heartbeat: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Until when the lease holds now, and why the task is to stop, if it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kept"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_progress: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewProgress"];
            };
        };
        responses: {
            /** @description Until when the lease holds now, and why the task is to stop, if it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kept"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_usage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewUsage"];
            };
        };
        responses: {
            /** @description Until when the lease holds now, and why the task is to stop, if it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kept"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_emit: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewChunk"];
            };
        };
        responses: {
            /** @description Until when the lease holds now, and why the task is to stop, if it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kept"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_complete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewResult"];
            };
        };
        responses: {
            /** @description How the attempt was recorded. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ended"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_fail: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewFailure"];
            };
        };
        responses: {
            /** @description How the attempt was recorded. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ended"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    leases_release: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The lease, as the claim gave it; opaque. */
                lease: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description How the attempt was recorded. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ended"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sessions_session_tasks: {
        parameters: {
            query?: {
                /** @description such as dead; several are separated by commas */
                status?: string;
                /** @description task type */
                type?: string;
                /** @description queue */
                queue?: string;
                /** @description user */
                user_id?: string;
                /** @description tag */
                tag?: string;
                /** @description workflow */
                workflow_id?: string;
                /** @description a filter, as in `status:dead age>1h payload.user:ada -queue:bulk "some text"` */
                q?: string;
                /** @description 1 to 500, else 50 */
                limit?: number;
                /** @description `next` of the page before */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tasks, newest first; `next` is the cursor of the page behind it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sessions_notifications: {
        parameters: {
            query?: {
                /** @description `next` of the page before */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Notifications that were not acknowledged; `more` when there are others behind them, at `next`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NoticePage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sessions_acknowledge: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Ack"];
            };
        };
        responses: {
            /** @description Those that were acknowledged now, and not before. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Acked"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sessions_get_preferences: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What a session wants to be told. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sessions_set_preferences: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Preferences"];
            };
        };
        responses: {
            /** @description What a session wants to be told. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sessions_ticket: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Good for one connection, within half a minute: `…/ws?ticket=…`. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ticket"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_list_webhooks: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All subscriptions. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_create: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewWebhook"];
            };
        };
        responses: {
            /** @description A subscription with its newest secret. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeWebhook"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The webhook's id. */
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_rotate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The webhook's id. */
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A subscription with its newest secret. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeWebhook"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_enable: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The webhook's id. */
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A subscription. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_deliveries: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The webhook's id. */
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tasks, newest first; `next` is the cursor of the page behind it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    webhooks_replay: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The webhook's id. */
                webhook_id: string;
                /** @description The task's id. */
                task_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The record of a task. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_queues_status: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Depths and counts of all queues. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Queues"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_dead: {
        parameters: {
            query?: {
                /** @description task type */
                type?: string;
                /** @description queue */
                queue?: string;
                /** @description session */
                session_id?: string;
                /** @description user */
                user_id?: string;
                /** @description tag */
                tag?: string;
                /** @description workflow */
                workflow_id?: string;
                /** @description a filter, as in `status:dead age>1h payload.user:ada -queue:bulk "some text"` */
                q?: string;
                /** @description 1 to 500, else 50 */
                limit?: number;
                /** @description `next` of the page before */
                cursor?: string;
                /** @description fingerprint: dead tasks counted by error */
                group_by?: "fingerprint";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tasks, newest first; `next` is the cursor of the page behind it. Or: Dead tasks by error, the most frequent first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskPage"] | components["schemas"]["DeadGroupPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_pause: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The queue's name. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A queue, and whether workers take from it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Paused"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_resume: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The queue's name. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A queue, and whether workers take from it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Paused"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_workers: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All workers. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkerPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_drain: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The worker, as `GET /workers` names it. */
                worker_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A worker that has registered. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_limits: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All definitions, and the keys in use. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LimitPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_set_limit: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key of a limit or a budget, exact or a family. */
                key: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LimitSpec"];
            };
        };
        responses: {
            /** @description A definition, by exact key or family. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Limit"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_delete_limit: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key of a limit or a budget, exact or a family. */
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_reset_limit: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key of a limit or a budget, exact or a family. */
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A definition, by exact key or family. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Limit"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_types: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All types. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TypePage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_usage: {
        parameters: {
            query?: {
                /** @description what to sum up by: day, type, queue, model, user, session; else day */
                by?: string;
                /** @description the first day, as in 2026-11-01; else 30 days */
                from?: string;
                /** @description the last day; else today */
                to?: string;
                /** @description only what was used for this type */
                type?: string;
                /** @description only what was used for this queue */
                queue?: string;
                /** @description only what was used for this model */
                model?: string;
                /** @description only what was used for this user */
                user_id?: string;
                /** @description only what was used for this session */
                session_id?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What was used from one day to another, the dearest first; days as they come. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsagePage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_list_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All budgets. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_set_budget: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key of a limit or a budget, exact or a family. */
                key: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BudgetSpec"];
            };
        };
        responses: {
            /** @description A definition: `global`, or `type:`, `queue:`, `user:` or `session:` with a name or a star. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Budget"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_delete_budget: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key of a limit or a budget, exact or a family. */
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    operating_task_metrics: {
        parameters: {
            query?: {
                /** @description hour or day (which is the default) */
                by?: string;
                /** @description from this moment on, as in 2026-11-16T00:00:00Z; else a day of hours, or thirty days */
                from?: string;
                /** @description until this moment; else until now */
                to?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What happened, oldest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskMetrics"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_list_keys: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All API keys. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyPage"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_create_key: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewKey"];
            };
        };
        responses: {
            /** @description A new API key: the only time that it is shown. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeKey"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_revoke_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key's id, as the list has it; not the key. */
                key_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_create_token: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session: any text of yours that names one conversation. */
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewToken"];
            };
        };
        responses: {
            /** @description A session token. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Token"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_create_ticket: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewTicket"];
            };
        };
        responses: {
            /** @description Good for one connection, within half a minute: `…/ws?ticket=…`. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ticket"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_who_am_i: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Who it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoggedIn"];
                };
            };
            401: components["responses"]["Unauthorized"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_log_in: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Login"];
            };
        };
        responses: {
            /** @description Who it is. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoggedIn"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["RequestTimeout"];
            413: components["responses"]["RequestEntityTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    access_log_out: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    health_api_health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description How the server, its engine and its workers are. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    health_health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description How the server, its engine and its workers are. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    health_livez: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The process answers. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    health_readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The process answers. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Alive"];
                };
            };
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    content_get_content: {
        parameters: {
            query?: never;
            header?: {
                /** @description bytes=0-999 answers with a part */
                Range?: string;
            };
            path: {
                /** @description The content's id, from a result. */
                content_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Content */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/pdf": string;
                    "audio/mpeg": string;
                    "audio/ogg": string;
                    "audio/wav": string;
                    "image/avif": string;
                    "image/gif": string;
                    "image/jpeg": string;
                    "image/png": string;
                    "image/webp": string;
                    "video/mp4": string;
                    "video/webm": string;
                };
            };
            /** @description A part */
            206: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/pdf": string;
                    "audio/mpeg": string;
                    "audio/ogg": string;
                    "audio/wav": string;
                    "image/avif": string;
                    "image/gif": string;
                    "image/jpeg": string;
                    "image/png": string;
                    "image/webp": string;
                    "video/mp4": string;
                    "video/webm": string;
                };
            };
            /** @description What you have is what there is */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            416: components["responses"]["RequestedRangeNotSatisfiable"];
            422: components["responses"]["UnprocessableEntity"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    health_scrape: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            503: components["responses"]["ServiceUnavailable"];
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
