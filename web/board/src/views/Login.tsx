// The door. The key goes over the wire once; then a cookie stands for it that no script can read.

import { type FormEvent, useState } from "react";
import { link, messageOf } from "../api.ts";

export function Login() {
  const [refusal, setRefusal] = useState("");
  const logIn = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget).get("key"));
    try {
      await link.call("post", "/api/v1/login", { body: { key } });
      location.reload();
    } catch (error) {
      setRefusal(messageOf(error));
    }
  };
  return (
    <main className="door">
      <form className="panel" onSubmit={(event) => void logIn(event)}>
        <h1>Outlast</h1>
        <label>API key<input name="key" type="password" autoComplete="current-password" required autoFocus /></label>
        {refusal ? <p className="refused" role="alert">{refusal}</p> : null}
        <button type="submit" className="primary">Log in</button>
        <p className="soft">A key comes from <code>outlast keys create admin</code>.</p>
      </form>
    </main>
  );
}
