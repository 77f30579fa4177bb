// Pages that only some may see: what they need is said before anything is asked that would be refused.
import type { ReactNode } from "react";
import { Link } from "../router";
import { Empty, Fault } from "../ui/parts";
import { may, type Scope, useMe } from "./me";

interface Props {
  scope: Scope;
  /** what the page shows, as it stands behind "to see". */
  what: string;
  children: ReactNode;
}

/** Need shows children to those who have a scope, and tells all others what is missing. */
export function Need({ scope, what, children }: Props) {
  const me = useMe();
  if (me.error) return <Fault error={me.error} retry={() => me.refetch()} />;
  if (!me.data) return <p className="muted">Loading…</p>;
  if (may(me.data, scope)) return <>{children}</>;
  const scopes = me.data.scopes?.join(", ") || "none";
  return (
    <Empty title={`You may not see ${what}`}>
      <p>
        That needs the scope <code>{scope}</code>, which the role <code>{scope === "approve" ? "approver" : "admin"}</code> has. You are <code>{me.data.principal}</code>
        {me.data.role ? (
          <>
            {" "}
            with the role <code>{me.data.role}</code>
          </>
        ) : null}
        , and your scopes are: {scopes}.
      </p>
      <p>
        Ask an administrator of <code>{me.data.namespace}</code> for a key that has it. <Link href="/settings">Settings</Link> tell who you are.
      </p>
    </Empty>
  );
}
