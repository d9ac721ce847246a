// A typed client for Outlast servers, without dependencies: for browsers and Node 20 or later.

export {
  type Action,
  Client,
  type ClientOptions,
  type Enqueued,
  type Filters,
  type Following,
  type Notice,
  type Options,
  type OutlastEvent,
  type Task,
  type Waiting,
} from "./client.ts";
export { exact } from "./exact.ts";
export { ApiError, type Problem, TaskFailed, Unreachable, WaitTimeout } from "./errors.ts";
export type { components, paths } from "./schema.ts";
export { type AnswerOf, type BodyOf, Link, type LinkOptions, type QueryOf, randomId } from "./wire.ts";
