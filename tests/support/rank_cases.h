/* What must hold for the collectives of any world, whatever its transport. Ranks run in threads or processes of their
 * own, where cmocka cannot fail: a case returns a status, and says in `messages` what is wrong. */
#ifndef HT_TESTS_RANK_CASES_H
#define HT_TESTS_RANK_CASES_H

#include "comm/comm.h"

/* Every collective in every number type that it takes, with sizes that no number of ranks divides; results against
 * sums in the order of ranks, bit for bit, and the bytes behind them untouched. `longest`: also what takes several
 * rounds. */
ht_status rank_case_collectives(ht_comm *comm, ht_context *messages, bool longest);
/* Many calls under way at once, in a world and its groups, waited for in another order; messages between neighbours. */
ht_status rank_case_requests(ht_comm *world, ht_context *messages);
/* Rows and columns of a world of `columns` times as many ranks, with all collectives in both. */
ht_status rank_case_groups(ht_comm *world, ht_context *messages, int columns);

#endif
