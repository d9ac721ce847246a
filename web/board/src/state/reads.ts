// What is read from the server: each read under the topic that makes it stale, see board.ts.

import { QueryCache, QueryClient, useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";
import { client, isRefused, link, type Me, type Right, may, type Shapes } from "../api.ts";
import type { Topic } from "./board.ts";

export interface Read<T> {
  data: T | undefined;
  error: Error | null;
  refetch: () => Promise<unknown>;
}

const WHO = ["once", "me"];

export const queries = new QueryClient({
  // Who is let in no more is asked for a key, on whatever screen.
  queryCache: new QueryCache({
    onError: (error, { queryKey }) => {
      if (isRefused(error, 401) && queryKey[1] !== WHO[1]) void queries.invalidateQueries({ queryKey: WHO });
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: Infinity, // the log tells when something is stale
      retry: false, // the client has tried several times
      refetchOnWindowFocus: false,
      refetchOnReconnect: false,
    },
  },
});

/** Read once, and again when the log says so; `everyMs` is for what no event tells. */
export function useRead<T>(
  topic: Topic | "once",
  key: readonly unknown[],
  read: () => Promise<T>,
  everyMs?: number,
): Read<T> {
  return useQuery({
    queryKey: [topic, ...key],
    queryFn: read,
    ...(everyMs === undefined ? {} : { refetchInterval: everyMs }),
  });
}

export const useQueues = (): Read<Shapes["Queues"]> => useRead("counts", [], () => client.queues(), 15_000);
export const useWorkers = (everyMs = 15_000): Read<Shapes["Worker"][]> =>
  useRead("workers", [], () => client.workers(), everyMs);
export const useLimits = (): Read<Shapes["LimitPage"]> => useRead("limits", [], () => client.limits());
export const useDead = (): Read<Shapes["DeadGroup"][]> => useRead("dead", ["groups"], () => client.deadGroups());
export const useTypes = (): Read<Shapes["TaskType"][]> => useRead("once", ["types"], () => client.types(), 60_000);
export const useHealth = (): Read<Shapes["Health"]> => useRead("limits", ["health"], () => client.health(), 15_000);
export const useSome = (filter: string, limit: number): Read<Shapes["TaskPage"]> =>
  useRead("tasks", ["some", filter, limit], () => client.page({ q: filter, limit }));

/** Whoever looks at the page; the shell has asked. */
export const Who = createContext<Me>({ role: "client", name: "", read_only: true });
export const useMe = (): Me => useContext(Who);
export const useMay = (right: Right): boolean => may(useMe(), right);

export const whoAmI = (): Promise<Me> => link.call("get", "/api/v1/login");
