// Prices of models, in dollars for a million tokens.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { address, get, post, requestId } from "../api/client";
import type { ImportPrices, ListPrices, NamespaceUsage, Price } from "../api/types";
import { useAddress } from "../router";
import { FormDialog, nanoOf, Text } from "../ui/act";
import { Committed, Table } from "../ui/filters";
import { count, dollars } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Status, usePageTitle, When } from "../ui/parts";

function PriceForm({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const send = async (f: Record<string, string>) => {
    const price: Partial<Price> = {
      provider: f.provider,
      model: f.model,
      validFrom: new Date().toISOString(),
      inputPerMillion: nanoOf(f.input),
      outputPerMillion: nanoOf(f.output),
      cachedInputPerMillion: nanoOf(f.cached),
      reasoningPerMillion: nanoOf(f.reasoning),
    };
    await post<Price>(address("/v1/prices", { requestId: requestId() }), price);
    await queries.invalidateQueries({ queryKey: ["prices"] });
  };
  const field = { type: "number", step: "any", min: "0" };
  return (
    <FormDialog title="New price" submit="Add the price" onClose={onClose} send={send}>
      <Text name="provider" label="Provider" required autoFocus />
      <Text name="model" label="Model" required />
      <Text name="input" label="Input, dollars a million tokens" required {...field} />
      <Text name="output" label="Output" required {...field} />
      <Text name="cached" label="Cached input" {...field} />
      <Text name="reasoning" label="Reasoning" {...field} />
    </FormDialog>
  );
}

/** pricesOf reads a list of prices, or a document that has one. */
function pricesOf(text: string): Price[] {
  const value = JSON.parse(text) as Price[] | { prices?: Price[] };
  return Array.isArray(value) ? value : (value.prices ?? []);
}

function ImportForm({ onClose, onDone }: { onClose: () => void; onDone: (done: ImportPrices) => void }) {
  const queries = useQueryClient();
  return (
    <FormDialog
      title="Import prices"
      submit="Import"
      onClose={onClose}
      send={async (f) => {
        onDone(await post<ImportPrices>("/v1/prices:import", { prices: pricesOf(f.text ?? "") }));
        await queries.invalidateQueries({ queryKey: ["prices"] });
      }}
    >
      <Text
        name="text"
        label="Prices (JSON, in nano-USD)"
        rows={8}
        required
        autoFocus
        placeholder='[{"provider": "openai", "model": "gpt-4o", "inputPerMillion": "2500000000", "outputPerMillion": "10000000000"}]'
      />
    </FormDialog>
  );
}

function Spent() {
  const usage = useQuery({ queryKey: ["prices", "usage"], queryFn: ({ signal }) => get<NamespaceUsage>("/v1/usage:namespace", {}, signal) });
  const u = usage.data;
  if (!u) return null;
  return (
    <p className="small">
      The namespace has made {count(u.calls)} calls with {count(u.spentTokens)} tokens {dollars(u.spentNanoUsd)}
      {Number(u.unpricedCalls) > 0 ? `; ${count(u.unpricedCalls)} of them have no known price` : ""}.
    </p>
  );
}

export default function PricesPage() {
  usePageTitle("Prices");
  const { query } = useAddress();
  const [form, setForm] = useState<"new" | "import" | undefined>();
  const [done, setDone] = useState<ImportPrices | undefined>();
  const provider = query.get("provider") ?? "";
  const model = query.get("model") ?? "";
  const list = usePages<ListPrices>(["prices"], "/v1/prices", { provider, model });
  const all = list.data?.pages.flatMap((p) => p.prices ?? []) ?? [];
  return (
    <>
      <div className="heading">
        <h1>Prices</h1>
        <Status>{done ? `${count(done.added)} new, ${count(done.unchanged)} were there` : list.isLoading ? "loading" : `${count(all.length)} shown`}</Status>
        <div className="buttons">
          <button type="button" onClick={() => setForm("import")}>
            Import
          </button>
          <button type="button" className="primary" onClick={() => setForm("new")}>
            New price
          </button>
        </div>
      </div>
      <Spent />
      <section className="filters" aria-label="Filters">
        <div className="fields">
          <Committed label="Provider" name="provider" value={provider} />
          <Committed label="Model" name="model" value={model} />
        </div>
      </section>
      {all.length > 0 ? (
        <Table label="Prices" head={["Provider", "Model", "Input", "Cached", "Output", "Reasoning", "From", "Until"]}>
          {all.map((p) => (
            <tr key={p.id}>
              <td data-name="Provider">{p.provider}</td>
              <td data-name="Model" className="name">
                {p.model}
              </td>
              <td data-name="Input">{dollars(p.inputPerMillion)}</td>
              <td data-name="Cached">{dollars(p.cachedInputPerMillion)}</td>
              <td data-name="Output">{dollars(p.outputPerMillion)}</td>
              <td data-name="Reasoning">{dollars(p.reasoningPerMillion)}</td>
              <td data-name="From">
                <When time={p.validFrom} />
              </td>
              <td data-name="Until">
                <When time={p.validUntil} />
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess && !list.isPlaceholderData ? (
        <Empty title={provider || model ? "No price matches" : "No price yet"}>
          <p>A call is priced by its provider and model. Calls without a price count their tokens alone.</p>
          <p className="buttons">
            <button type="button" className="primary" onClick={() => setForm("new")}>
              Add a price
            </button>
          </p>
          <p>Or with the command line:</p>
          <Command>epigraph prices import prices.json</Command>
        </Empty>
      ) : null}
      <More of={list} />
      {form === "new" ? <PriceForm onClose={() => setForm(undefined)} /> : null}
      {form === "import" ? <ImportForm onClose={() => setForm(undefined)} onDone={setDone} /> : null}
    </>
  );
}
