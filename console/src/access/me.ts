// Who calls, and what they may do.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { useSession } from "../api/session";
import type { Caller } from "../api/types";

export type Scope = "read" | "run" | "approve" | "admin" | "worker";

export function useMe() {
  const session = useSession();
  return useQuery({ queryKey: ["me", session.key], queryFn: ({ signal }) => get<Caller>("/v1/me", {}, signal), staleTime: 30_000, retry: false, enabled: !session.refused });
}

export function may(me: Caller | undefined, scope: Scope): boolean {
  return me?.scopes?.includes(scope) ?? false;
}
