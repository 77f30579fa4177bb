// Remote workers that are connected.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { ListWorkers } from "../api/types";
import { Table } from "../ui/filters";
import { count } from "../ui/format";
import { Command, Empty, Fault, State, Status, usePageTitle, When } from "../ui/parts";

export default function WorkersPage() {
  usePageTitle("Workers");
  const list = useQuery({
    queryKey: ["workers"],
    queryFn: ({ signal }) => get<ListWorkers>("/v1/workers", {}, signal),
    refetchInterval: 5_000, // no stream tells who comes and goes
  });
  const all = list.data?.workers ?? [];
  return (
    <>
      <div className="heading">
        <h1>Workers</h1>
        <Status>{list.isLoading ? "loading" : `${count(all.length)} connected`}</Status>
      </div>
      <Fault error={list.error} retry={() => list.refetch()} />
      {all.length > 0 ? (
        <Table label="Workers" head={["State", "Worker", "Actors", "Busy", "Connected", "Program"]}>
          {all.map((w) => (
            <tr key={`${w.workerId} ${w.executorId}`}>
              <td data-name="State">
                <State of={w.draining ? "RUN_STATE_WAITING" : "RUN_STATE_RUNNING"} reason={w.draining ? "draining" : undefined} />
              </td>
              <td data-name="Worker" className="name">
                {w.workerId}
              </td>
              <td data-name="Actors">{w.actors?.join(", ")}</td>
              <td data-name="Busy">
                {count(w.busy)} of {count(w.slots)}
              </td>
              <td data-name="Connected">
                <When time={w.connectTime} />
              </td>
              <td data-name="Program">{w.userAgent}</td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        <Empty title="No worker is connected">
          <p>A worker is a program of yours that does the calls of some actors. An example, in the folder of the source:</p>
          <Command>cd examples/worker-python && ./stubs.sh && python3 worker.py</Command>
        </Empty>
      ) : null}
    </>
  );
}
