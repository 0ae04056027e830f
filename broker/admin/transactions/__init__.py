"""Transactions, for operators. `{t}` is /admin/v3/transactions, and `{topic}` is {tenant}/{namespace}/{topic}.

GET   {t}/coordinators                        [{"id":0,"brokerServiceUrl":"pulsar://..."}]
GET   {t}/coordinatorStats?coordinatorId=     {"state","leastSigBits","lowWaterMark","ongoingTxnSize",
                                              "recoverStartTime","recoverEndTime"}; without an id those of all in use
GET   {t}/coordinatorInternalStats/{id}?metadata=    {"transactionLogStats":LOG}
GET   {t}/transactionMetadata/{most}/{least}  {"txnId","status","openTimestamp","timeoutAt","producedPartitions",
                                              "ackedPartitions"}; 404 it is over
GET   {t}/slowTransactions/{ms}?coordinatorId=       the same of all that are open for longer, by transaction
POST  {t}/abortTransaction/{most}/{least}     204; 404 it is over, 409 it is being committed
POST  {t}/transactionCoordinator/replicas     body: the new number of coordinators; 204; 406 not above the present
                                              one; 412 above REPLICAS_MAX
GET   {t}/transactionBufferStats/{topic}?lowWaterMarks=
GET   {t}/transactionInBufferStats/{topic}/{most}/{least}
GET   {t}/transactionBufferInternalStats/{topic}?metadata=     {"snapshotType":"Single",
                                              "singleSnapshotSystemTopicInternalStats":LOG}; 404 it has no snapshot
GET   {t}/pendingAckStats/{topic}/{subscription}?lowWaterMarks=
GET   {t}/pendingAckInternalStats/{topic}/{subscription}?metadata=     {"pendingAckLogStats":LOG}; 503 it has no log
GET   {t}/transactionInPendingAckStats/{topic}/{subscription}/{most}/{least}
GET   {t}/positionStatsInPendingAck/{topic}/{subscription}/{ledger}/{entry}?batchIndex=     {"state":"PendingAck"},
                                              MarkDelete, NotInPendingAck, InvalidPosition or PendingAckNotReady

LOG is {"managedLedgerName","managedLedgerInternalStats"}, the latter as `internalStats` of topics. The broker of a
coordinator, or of a topic, answers about it; others redirect to it. 503 where transactions are off.
Source: Pulsar's Transactions (v3), TransactionsBase.
"""
