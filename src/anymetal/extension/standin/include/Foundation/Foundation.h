// Foundation as far as compute extensions use it.
#pragma once

#import <Foundation/NSCollections.h>
#import <Foundation/NSObject.h>
#import <Foundation/NSString.h>
#import <Foundation/NSSystem.h>
