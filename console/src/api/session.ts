// The key and the namespace with which this tab calls the API. They last as long as the tab.
import { useSyncExternalStore } from "react";

export interface Session {
  key: string;
  namespace: string;
  /** refused says why the server wants a key, or another one; it is empty while it lets this one in. */
  refused: string;
}

const keyName = "epigraph.key";
const namespaceName = "epigraph.namespace";

let session: Session = {
  key: sessionStorage.getItem(keyName) ?? "",
  namespace: sessionStorage.getItem(namespaceName) ?? "",
  refused: "",
};
const listeners = new Set<() => void>();

function change(next: Session) {
  session = next;
  for (const told of listeners) told();
}

export function currentSession(): Session {
  return session;
}

export function signIn(key: string, namespace: string) {
  if (key) sessionStorage.setItem(keyName, key);
  else sessionStorage.removeItem(keyName);
  if (namespace) sessionStorage.setItem(namespaceName, namespace);
  else sessionStorage.removeItem(namespaceName);
  change({ key, namespace, refused: "" });
}

export function signOut() {
  signIn("", "");
}

/** forget drops what the next page would call with, and leaves this page as it is. */
export function forget() {
  sessionStorage.removeItem(keyName);
  sessionStorage.removeItem(namespaceName);
}

/** logOut ends the session of this browser, and begins anew. */
export async function logOut() {
  forget();
  await fetch("/auth/logout", { method: "POST" });
  location.assign("/");
}

export function refuse(why: string) {
  if (session.refused !== why) change({ ...session, refused: why });
}

export function useSession(): Session {
  return useSyncExternalStore(
    (told) => {
      listeners.add(told);
      return () => listeners.delete(told);
    },
    () => session,
  );
}
