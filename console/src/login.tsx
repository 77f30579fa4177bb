// The form for a key, shown when the server refuses a request without one.
import { type FormEvent, useState } from "react";
import { currentSession, signIn } from "./api/session";
import { usePageTitle } from "./ui/parts";

export function Login({ why }: { why: string }) {
  usePageTitle("Sign in");
  const [key, setKey] = useState("");
  const [namespace, setNamespace] = useState(currentSession().namespace);
  const enter = (e: FormEvent) => {
    e.preventDefault();
    signIn(key.trim(), namespace.trim());
  };
  return (
    <form className="login" onSubmit={enter}>
      <h1>Sign in</h1>
      <p>{currentSession().key ? `The key was refused: ${why}.` : "This server wants an API key."}</p>
      <label>
        API key
        <input type="password" autoComplete="current-password" required value={key} onChange={(e) => setKey(e.target.value)} autoFocus />
      </label>
      <label>
        Namespace <span className="muted">(only if the key has none of its own)</span>
        <input value={namespace} onChange={(e) => setNamespace(e.target.value)} autoComplete="off" spellCheck={false} pattern="[a-z0-9\-]*" />
      </label>
      <button type="submit" className="primary">
        Sign in
      </button>
      <p className="muted small">The key stays in this tab, and is forgotten when the tab is closed.</p>
    </form>
  );
}
