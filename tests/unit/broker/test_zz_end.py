import sys, time, trio, pytest, gc
from typing import Any
from quire.ledger.position import Position
from tests.unit.broker.counted_steps import Steps
from tests.unit.broker.peers import TOPIC, in_broker
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.transacting import Client, id_of, producer

@pytest.mark.parametrize("commit",[True,False])
@pytest.mark.parametrize("kind",[SUB.Shared,SUB.Exclusive])
async def test_it(commit, kind):
    N=20000
    gc.disable()
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        client=await Client.of(room)
        sender=await producer(room)
        for first in range(0,N,1000):
            await sender.publish(*[b"m"]*1000, first=first)
        peer=await room.connect()
        await peer.subscribe(TOPIC, subType=kind, permits=N)
        msgs=[(await peer.message())[0].message_id for _ in range(N)]
        txn=await client.new()
        await client.add_subscription(txn)
        steps=Steps(trio.lowlevel.current_task(), real=True); trio.lowlevel.add_instrument(steps)
        for at in range(0,N,1000):
            body=pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=msgs[at:at+1000], request_id=at+5000, **id_of(txn))
            peer.send(C(type=C.ACK, ack=body)); 
            await peer.expect(C.ACK_RESPONSE)
        trio.lowlevel.remove_instrument(steps)
        print("ack", steps.longest*1e3, steps.where)
        for real in (True,):
            steps=Steps(trio.lowlevel.current_task(), real=real); trio.lowlevel.add_instrument(steps)
            await (client.commit(txn) if commit else client.abort(txn))
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(steps); sys.setprofile(None)
            print("END", commit, kind, "ms" if real else "calls", steps.longest*(1e3 if real else 1), steps.where)
