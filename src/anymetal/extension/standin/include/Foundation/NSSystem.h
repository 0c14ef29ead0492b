// What an extension asks the system: files that are there, the process, its environment.
#pragma once

#import <Foundation/NSCollections.h>

typedef struct {
  NSInteger majorVersion;
  NSInteger minorVersion;
  NSInteger patchVersion;
} NSOperatingSystemVersion;

@interface NSProcessInfo : NSObject
+ (NSProcessInfo*)processInfo;
@property(readonly) NSOperatingSystemVersion operatingSystemVersion;
@property(readonly, copy) NSDictionary<NSString*, NSString*>* environment;
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version;
@end

@interface NSFileManager : NSObject
+ (NSFileManager*)defaultManager;
- (BOOL)fileExistsAtPath:(NSString*)path;
@end
