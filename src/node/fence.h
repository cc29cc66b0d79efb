/* fence.h - fences that leave out an object's own news.
 *
 * An object that tells its peers of a step by one write each (a barrier's arrivals) and fences before the
 * next step would flush nothing but its own news, by a read to each peer. It need not: the next news goes the
 * same way, behind the last, and what peers say in turn proves that earlier news has arrived. For all other
 * fences, and for other threads', the news counts like any write until then.
 */
#pragma once

#include "node/node.h"

struct remo__news;

/* For one object of the node; freed with free. */
int remo__news_open(struct remo_node *node, struct remo__news **ret_news);
/* Around what `thread` writes to tell of a step; all that it wrote before is placed. */
void remo__news_begin(struct remo__news *news, struct remo__thread *thread);
void remo__news_end(struct remo__news *news);
/* In place of the end: it was not told to all, and other writes may come in between before it is. The next
 * fence leaves nothing out. */
void remo__news_drop(struct remo__news *news);
/* The peers have shown that they saw the news before the latest, or are gone. */
void remo__news_placed(struct remo__news *news);
/* A global fence, but for the latest news of the calling thread. */
int remo__fence_but(struct remo_node *node, const struct remo__news *news);
